#pragma once
// Offline choice of addresses of blocks with known lifetimes in one address range (dynamic storage
// allocation), as pure arithmetic. The problem is NP-hard; these are the greedy heuristics that suit programs
// with stacked lifetimes, as in Pisarchyk and Lee, "Efficient memory management for deep neural net
// inference" (2020).

#include <cstdint>
#include <limits>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// size: bytes, already rounded to the alignment. Two blocks conflict where [first, last] intersect.
struct Block {
  std::int64_t size = 0;
  OpId first = 0;
  OpId last = 0;
};

struct Addresses {
  std::vector<std::int64_t> address;  ///< per block
  std::int64_t extent = 0;
};

/// The largest sum of sizes alive at once: no extent can be smaller. ops: number of issue positions.
std::int64_t live_bytes(const std::vector<Block>& blocks, std::size_t ops);

/// Allocates and frees in issue order (or against it, from the program's end), each block in the smallest
/// hole that holds it. O(n log n).
Addresses place_online(const std::vector<Block>& blocks, std::size_t ops, bool from_end);

/// What first fit may take.
struct Limits {
  std::int64_t looks = 0;  ///< at runs of taken bytes
  std::int64_t extent = std::numeric_limits<std::int64_t>::max();
};

/// In the given order, each block at the lowest address that is free over its lifetime; one and those behind
/// it in `next` at one that is free over all theirs. About O(n log^2 ops) where live bytes are packed
/// densely; gives up beyond the limits and returns an extent of -1.
Addresses place_first_fit(const std::vector<Block>& blocks, const std::vector<int>& order, std::size_t ops,
                          Limits limits, const std::vector<int>& next = {});

/// The smallest extent of the above over several orders; stops early at an extent within a thousandth of the
/// live bytes. next: per block the one that must have the same address, or -1; no block is named twice. An
/// extent of -1 where their lives overlap.
Addresses choose_addresses(const std::vector<Block>& blocks, std::size_t ops,
                           const std::vector<int>& next = {});

}  // namespace ztrain::program
