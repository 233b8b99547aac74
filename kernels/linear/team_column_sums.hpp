#pragma once
// Column sums by teams of a GPU, of all rows of a matrix or of each group of them. Included by kernel sources
// only.

#include <cstdint>

#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {

inline constexpr std::int64_t column_block = 64;

template <class G, class A>
KOKKOS_INLINE_FUNCTION void write_sum(A sum, G& db, bool accumulate) {
  db = static_cast<G>(accumulate ? static_cast<A>(db) + sum : sum);
}

/// A team takes 64 columns, which are a cache line of a 16-bit type: 8 threads share a row, and each
/// of 64 sets of them sums every 64th row. The sets' sums, side by side in shared memory, are added in
/// their order.
template <class T, class G>
struct TeamColumnSums {
  using A = acc_t<T>;
  static constexpr int sets = 64, lanes = static_cast<int>(column_block / pack), threads = sets * lanes;
  static constexpr std::size_t shared_bytes = sets * column_block * sizeof(A);

  Matrix<const T> dy;
  G* db;  ///< [groups, columns]
  bool accumulate;
  const std::int32_t* offsets = nullptr;  ///< where groups of rows begin; null: all rows are one

  /// Returns the number of teams of each group.
  KOKKOS_INLINE_FUNCTION std::int64_t blocks() const { return (dy.cols + column_block - 1) / column_block; }

  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const std::int64_t rank = team.team_rank(), set = rank / lanes, lane = rank % lanes;
    const std::int64_t index = offsets ? team.league_rank() / blocks() : 0;
    const std::int64_t begin = (team.league_rank() - index * blocks()) * column_block;
    auto* const sums = static_cast<A*>(team.team_scratch(0).get_shmem(std::size_t{shared_bytes}));
    const std::int64_t first = offsets ? offsets[index] : 0, last = offsets ? offsets[index + 1] : dy.rows;
    sum_rows(first + set, last, begin + lane * pack, sums + set * column_block + lane * pack);
    team.team_barrier();
    if (rank >= column_block || begin + rank >= dy.cols) return;
    A total = 0;
    for (int s = 0; s < sets; ++s) total += sums[s * column_block + rank];
    write_sum(total, db[index * dy.cols + begin + rank], accumulate);
  }

  KOKKOS_INLINE_FUNCTION void sum_rows(std::int64_t first, std::int64_t last, std::int64_t column,
                                       A* out) const {
    const std::int64_t left = dy.cols - column, n = left < pack ? left : pack;
    A sum[pack] = {};
#pragma unroll 4
    for (std::int64_t row = first; row < last; row += sets) {
      Pack<T, pack> values;
      values.load(dy.data + row * dy.cols + column, n);
      for (std::int64_t i = 0; i < pack; ++i) sum[i] += load(values.at[i]);
    }
    for (std::int64_t i = 0; i < pack; ++i) out[i] = sum[i];
  }
};

}  // namespace ztrain::kernels
