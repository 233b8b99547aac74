#pragma once
// A keyed pseudo-random permutation of [0, size) with random access and no table.
//
// A balanced Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
// functions", SIAM J. Comput. 17, 1988) with Philox as round function permutes the smallest [0, 4^k) that
// holds the range; a value that falls outside is permuted again until it falls inside (cycle walking: Black
// and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), fewer than four times on average.

#include <cstdint>

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

}  // namespace ztrain::data
