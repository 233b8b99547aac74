#pragma once
// The draws of one case: the same for one seed, whatever the machine and the library.

#include <cstddef>
#include <cstdint>

#include "base/philox.hpp"

namespace ztrain::damaged_files {

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t bits() {
    const PhiloxBlock block = philox(seed_, 0, drawn_++);
    return block[0] | std::uint64_t{block[1]} << 32;
  }
  /// 0 <= result < n; 0 where n is 0.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(bits() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::uint64_t seed_, drawn_ = 0;
};

}  // namespace ztrain::damaged_files
