#pragma once
// The steps of sort_by_expert, which is a stable counting sort: choices are counted in blocks, the counts
// become the rows at which each block's choices begin, and each block places its own. On a GPU a thread of a
// block looks for one expert alone, so that no two of them write to one place. Included by kernel sources
// only.

#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {

struct SortBlocks {
  const std::int32_t* chosen;  ///< [choices]
  std::int64_t choices, block, experts;
  std::int32_t* begins;  ///< [blocks, experts]: counts, and then the rows at which they begin
  std::int32_t* slots;   ///< [choices]

  /// Calls f(i) for each choice of a block.
  template <class F>
  KOKKOS_INLINE_FUNCTION void each(std::int64_t number, const F& f) const {
    const std::int64_t begin = number * block, end = begin + block < choices ? begin + block : choices;
#pragma unroll 8
    for (std::int64_t i = begin; i < end; ++i) f(i);
  }
};

struct CountBlock {
  SortBlocks b;
  void operator()(std::int64_t number) const {
    std::int32_t* const counts = b.begins + number * b.experts;
    for (std::int64_t e = 0; e < b.experts; ++e) counts[e] = 0;
    b.each(number, [&](std::int64_t i) { ++counts[b.chosen[i]]; });
  }
};
struct PlaceBlock {
  SortBlocks b;
  void operator()(std::int64_t number) const {
    std::int32_t* const begins = b.begins + number * b.experts;
    b.each(number, [&](std::int64_t i) { b.slots[i] = begins[b.chosen[i]]++; });
  }
};

/// Counts the choices of one expert.
struct CountOne {
  SortBlocks b;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const std::int64_t expert = index % b.experts;
    std::int32_t count = 0;
    b.each(index / b.experts, [&](std::int64_t i) { count += b.chosen[i] == expert ? 1 : 0; });
    b.begins[index] = count;
  }
};
struct PlaceOne {
  SortBlocks b;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const std::int64_t expert = index % b.experts;
    std::int32_t next = b.begins[index];
    b.each(index / b.experts, [&](std::int64_t i) {
      if (b.chosen[i] == expert) b.slots[i] = next++;
    });
  }
};

/// Makes begins and offsets [experts + 1] of the counts.
struct SumCounts {
  SortBlocks b;
  std::int64_t blocks;
  std::int32_t* offsets;

  void operator()(std::int64_t) const {
    std::int32_t next = 0;
    for (std::int64_t e = 0; e < b.experts; ++e) {
      offsets[e] = next;
      next = begin_blocks(e, next);
    }
    offsets[b.experts] = next;
  }

  /// Is called by as many threads as there are experts, or more.
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t) const {
    const std::int64_t e = threads.rank();
    std::int32_t count = 0, begin = 0;
    if (e < b.experts) {
      for (std::int64_t i = 0; i < blocks; ++i) count += b.begins[i * b.experts + e];
      offsets[e + 1] = count;
    }
    threads.sync();
    if (e < b.experts)
      for (std::int64_t before = 1; before <= e; ++before) begin += offsets[before];
    threads.sync();
    if (e >= b.experts) return;
    offsets[e + 1] = begin + count;
    if (e == 0) offsets[0] = 0;
    begin_blocks(e, begin);
  }

 private:
  KOKKOS_INLINE_FUNCTION std::int32_t begin_blocks(std::int64_t expert, std::int32_t next) const {
    for (std::int64_t i = 0; i < blocks; ++i) {
      std::int32_t& begin = b.begins[i * b.experts + expert];
      const std::int32_t count = begin;
      begin = next;
      next += count;
    }
    return next;
  }
};

}  // namespace ztrain::kernels
