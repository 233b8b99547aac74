#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/linear/linear.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t column_block = 64;

template <class G, class A>
KOKKOS_INLINE_FUNCTION void write_sum(A sum, G& db, bool accumulate) {
  db = static_cast<G>(accumulate ? static_cast<A>(db) + sum : sum);
}

/// On a CPU: sums row_block rows at a time and then the sums, so that the rounding error grows with the root
/// of the tokens.
template <class T, class G>
struct ColumnSums {
  static constexpr std::int64_t row_block = 128;

  Matrix<const T> dy;
  G* db;
  bool accumulate;

  void operator()(std::int64_t begin, std::int64_t n) const {
    using A = acc_t<T>;
    A total[column_block] = {};
    for (std::int64_t r0 = 0; r0 < dy.rows; r0 += row_block) {
      A partial[column_block] = {};
      for (std::int64_t r = r0; r < std::min(dy.rows, r0 + row_block); ++r) {
        const T* __restrict row = dy.data + r * dy.cols + begin;
        for (std::int64_t c = 0; c < n; ++c) partial[c] += static_cast<A>(row[c]);
      }
      for (std::int64_t c = 0; c < n; ++c) total[c] += partial[c];
    }
    for (std::int64_t c = 0; c < n; ++c) write_sum(total[c], db[begin + c], accumulate);
  }
};

/// On a GPU a team takes 64 columns, which are a cache line of a 16-bit type: 8 threads share a row, and each
/// of 64 groups of them sums every 64th row. The groups' sums, side by side in shared memory, are added in
/// their order.
template <class T, class G>
struct TeamColumnSums {
  using A = acc_t<T>;
  static constexpr int groups = 64, lanes = static_cast<int>(column_block / pack), threads = groups * lanes;
  static constexpr std::size_t shared_bytes = groups * column_block * sizeof(A);

  Matrix<const T> dy;
  G* db;
  bool accumulate;

  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const std::int64_t rank = team.team_rank(), group = rank / lanes, lane = rank % lanes;
    const std::int64_t begin = team.league_rank() * column_block;
    auto* const sums = static_cast<A*>(team.team_scratch(0).get_shmem(std::size_t{shared_bytes}));
    sum_rows(group, begin + lane * pack, sums + group * column_block + lane * pack);
    team.team_barrier();
    if (rank >= column_block || begin + rank >= dy.cols) return;
    A total = 0;
    for (int g = 0; g < groups; ++g) total += sums[g * column_block + rank];
    write_sum(total, db[begin + rank], accumulate);
  }

  KOKKOS_INLINE_FUNCTION void sum_rows(std::int64_t group, std::int64_t column, A* out) const {
    const std::int64_t left = dy.cols - column, n = left < pack ? left : pack;
    A sum[pack] = {};
#pragma unroll 4
    for (std::int64_t row = group; row < dy.rows; row += groups) {
      Pack<T, pack> values;
      values.load(dy.data + row * dy.cols + column, n);
      for (std::int64_t i = 0; i < pack; ++i) sum[i] += load(values.at[i]);
    }
    for (std::int64_t i = 0; i < pack; ++i) out[i] = sum[i];
  }
};

}  // namespace

template <class T, class G>
void linear_grad_bias(Exec& exec, Matrix<const T> dy, Vector<G> db, bool accumulate) {
  REQUIRE(db.count == dy.cols, "linear bias gradient: {} elements for {} columns", db.count, dy.cols);
  using Sums = TeamColumnSums<T, G>;
  static_assert(carried<Sums>);
  if constexpr (on_gpu) {
    for_teams(exec, ceil_div(dy.cols, column_block), Sums::threads, 1, Sums::shared_bytes,
              Sums{dy, db.data, accumulate});
  } else {
    for_blocks<column_block>(exec, dy.cols, ColumnSums<T, G>{dy, db.data, accumulate});
  }
}

ZTRAIN_GRADIENT_INSTANCES(linear_grad_bias)

}  // namespace ztrain::kernels
