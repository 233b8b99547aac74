#pragma once
// A keyed pseudo-random permutation of [0, size) with random access and no table.
//
// A balanced Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
// functions", SIAM J. Comput. 17, 1988) with Philox as round function permutes the smallest [0, 4^k) that
// holds the range; a value that falls outside is permuted again until it falls inside (cycle walking: Black
// and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), fewer than four times on average.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/philox.hpp"

namespace ztrain::data {

class Permutation {
 public:
  /// size >= 1. Two streams of one key are unrelated permutations.
  Permutation(std::int64_t size, std::uint64_t key, std::uint64_t stream);

  /// Returns the image of index, 0 <= index < size. A pure function.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_, key_, stream_;
  unsigned half_bits_;
};

inline Permutation::Permutation(std::int64_t size, std::uint64_t key, std::uint64_t stream)
    : size_(static_cast<std::uint64_t>(size)),
      key_(key),
      stream_(stream),
      half_bits_(std::max(1u, static_cast<unsigned>(std::bit_width(size_ - 1) + 1) / 2)) {}

inline std::uint64_t Permutation::encrypt(std::uint64_t value) const {
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

inline std::int64_t Permutation::operator()(std::int64_t index) const {
  std::uint64_t value = static_cast<std::uint64_t>(index);
  do value = encrypt(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace ztrain::data
