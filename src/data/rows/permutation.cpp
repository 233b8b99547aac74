#include "data/rows/permutation.hpp"

#include <algorithm>
#include <bit>

#include "base/philox.hpp"

namespace ztrain::data {

Permutation::Permutation(std::int64_t size, std::uint64_t key, std::uint64_t stream)
    : size_(static_cast<std::uint64_t>(size)),
      key_(key),
      stream_(stream),
      half_bits_(std::max(1u, static_cast<unsigned>(std::bit_width(size_ - 1) + 1) / 2)) {}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  constexpr std::uint64_t rounds = 6;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t mixed = left ^ (philox(key_, stream_ * rounds + round, right)[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  std::uint64_t value = static_cast<std::uint64_t>(index);
  do value = encrypt(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace ztrain::data
