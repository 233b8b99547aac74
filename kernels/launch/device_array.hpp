#pragma once
// A table that kernels read, in the memory of the device: written once, when something is prepared. Included
// by kernel sources only.

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

}  // namespace ztrain::kernels
