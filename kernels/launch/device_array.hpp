#pragma once
// A table that kernels read, in the memory of the device: written once, when something is prepared. Included
// by kernel sources only.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/launch/exec_kokkos.hpp"

namespace ztrain::kernels {

/// Trivially copyable values. Copies share the memory; the last one frees it. Allocates and waits: not for
/// use in steps.
template <class V>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(const std::vector<V>& values)
      : view_(Kokkos::view_alloc(std::string("table"), Kokkos::WithoutInitializing), values.size()) {
    using Host = Kokkos::View<const V*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Kokkos::deep_copy(view_, Host(values.data(), values.size()));
  }

  const V* data() const { return view_.data(); }

 private:
  Kokkos::View<V*, Kokkos::DefaultExecutionSpace::memory_space> view_;
};

/// The last of `count` entries of such a table, of which the i-th begins at begin(i), the first at 0, that
/// does not begin behind `at`.
template <class Begin>
KOKKOS_INLINE_FUNCTION std::int64_t last_begun(std::int64_t count, std::int64_t at, const Begin& begin) {
  std::int64_t low = 0, high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (begin(middle) <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace ztrain::kernels
