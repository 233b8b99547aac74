#include <algorithm>

#include "base/error.hpp"
#include "kernels/dora/dora.hpp"
#include "kernels/dora/inverse_norm.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {
namespace {

template <class T>
struct SquaresArrays {
  const T *weight, *a, *b;
  acc_t<T>* squares;
  std::int64_t rows, cols, rank;
  acc_t<T> scale;
};

/// sum += factor * a.
template <class T>
void add_multiple(const T* __restrict a, acc_t<T> factor, acc_t<T>* __restrict sum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * load(a[i]);
}

template <class A>
A squares_of(const A* values, std::int64_t n) {
  A sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += values[i] * values[i];
  return sum;
}

/// Rows of a weight that share what is read of A: 32 by the one thread of a CPU, 8 by a team of a GPU.
template <class T>
struct DoraSquaresOfRows {
  using A = acc_t<T>;
  static constexpr std::int64_t of_thread = 32, of_team = 8;

  SquaresArrays<T> p;

  void operator()(std::int64_t block) const {
    const std::int64_t first = block * of_thread, rows = std::min(of_thread, p.rows - first);
    A sums[of_thread] = {};
    for (std::int64_t column = 0; column < p.cols; column += quantum) {
      const std::int64_t n = std::min(quantum, p.cols - column);
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t row = first + i;
        A values[quantum];
        const T* const weight = p.weight + row * p.cols + column;
        for (std::int64_t j = 0; j < n; ++j) values[j] = load(weight[j]);
        for (std::int64_t q = 0; q < p.rank; ++q)
          add_multiple<T>(p.a + q * p.cols + column, p.scale * load(p.b[row * p.rank + q]), values, n);
        sums[i] += squares_of<A>(values, n);
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) p.squares[first + i] = sums[i];
  }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t block) const {
    const std::int64_t first = block * of_team, last = p.rows - 1;
    A sums[of_team] = {};
    for (std::int64_t column = threads.rank(); column < p.cols; column += threads.size()) {
      A values[of_team];
      for (std::int64_t i = 0; i < of_team; ++i)
        values[i] = load(p.weight[(first + i < last ? first + i : last) * p.cols + column]);
      for (std::int64_t q = 0; q < p.rank; ++q) {
        const A factor = p.scale * load(p.a[q * p.cols + column]);
        for (std::int64_t i = 0; i < of_team; ++i)
          values[i] += factor * load(p.b[(first + i < last ? first + i : last) * p.rank + q]);
      }
      for (std::int64_t i = 0; i < of_team; ++i) sums[i] += values[i] * values[i];
    }
    for (std::int64_t i = 0; i < of_team; ++i) {
      const A sum = threads.sum(sums[i]);
      if (threads.rank() == 0 && first + i <= last) p.squares[first + i] = sum;
    }
  }
};

template <class T, class G>
struct MagnitudeArrays {
  const T *dy, *x;
  const acc_t<T>* squares;
  G* dmagnitude;
  std::int64_t rows, cols;
  bool accumulate;

  KOKKOS_INLINE_FUNCTION void write(std::int64_t column, acc_t<T> sum) const {
    sum *= inverse_norm<T>(squares[column]);
    dmagnitude[column] = static_cast<G>(accumulate ? static_cast<acc_t<T>>(dmagnitude[column]) + sum : sum);
  }
};

constexpr std::int64_t magnitude_columns = 64;

/// 64 columns by the one thread of a CPU: sums some rows at a time and then the sums, so that the rounding
/// error grows with the root of the tokens.
template <class T, class G>
struct MagnitudeColumns {
  static constexpr std::int64_t row_block = 128;

  MagnitudeArrays<T, G> p;

  void operator()(std::int64_t begin, std::int64_t n) const {
    acc_t<T> total[magnitude_columns] = {};
    for (std::int64_t r0 = 0; r0 < p.rows; r0 += row_block) {
      acc_t<T> part[magnitude_columns] = {};
      for (std::int64_t r = r0; r < std::min(p.rows, r0 + row_block); ++r) {
        const T* __restrict dy = p.dy + r * p.cols + begin;
        const T* __restrict x = p.x + r * p.cols + begin;
        for (std::int64_t c = 0; c < n; ++c) part[c] += load(dy[c]) * load(x[c]);
      }
      for (std::int64_t c = 0; c < n; ++c) total[c] += part[c];
    }
    for (std::int64_t c = 0; c < n; ++c) p.write(begin + c, total[c]);
  }
};

/// 64 columns by a team of a GPU: 8 sets of 64 threads sum every eighth row, and their sums are added in
/// order.
template <class T, class G>
struct MagnitudeTeam {
  using A = acc_t<T>;
  static constexpr int sets = 8, threads = sets * static_cast<int>(magnitude_columns);
  static constexpr std::size_t shared_bytes = threads * sizeof(A) + 64;

  MagnitudeArrays<T, G> p;

  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const std::int64_t rank = team.team_rank(), set = rank / magnitude_columns,
                       column = team.league_rank() * magnitude_columns + rank % magnitude_columns;
    auto* const sums = static_cast<A*>(team.team_scratch(0).get_shmem(threads * sizeof(A)));
    A sum = 0;
    if (column < p.cols)
      for (std::int64_t row = set; row < p.rows; row += sets)
        sum += load(p.dy[row * p.cols + column]) * load(p.x[row * p.cols + column]);
    sums[rank] = sum;
    team.team_barrier();
    if (set > 0 || column >= p.cols) return;
    A total = 0;
    for (int s = 0; s < sets; ++s) total += sums[s * magnitude_columns + rank];
    p.write(column, total);
  }
};

}  // namespace

template <class T>
void dora_squares(Exec& exec, Matrix<const T> weight, Matrix<const T> a, Matrix<const T> b, double scale,
                  Vector<acc_t<T>> squares) {
  REQUIRE(a.cols == weight.cols && b.rows == weight.rows && b.cols == a.rows && squares.count == weight.rows,
          "dora_squares: the weight is [{}, {}], but a is [{}, {}], b [{}, {}], squares [{}]", weight.rows,
          weight.cols, a.rows, a.cols, b.rows, b.cols, squares.count);
  using Rows = DoraSquaresOfRows<T>;
  const std::int64_t together = on_gpu ? Rows::of_team : Rows::of_thread;
  for_shared_rows(exec, ceil_div(weight.rows, together), threads_for(weight.cols, 1),
                  Rows{{weight.data, a.data, b.data, squares.data, weight.rows, weight.cols, a.rows,
                        static_cast<acc_t<T>>(scale)}});
}

template <class T, class G>
void dora_grad_magnitude(Exec& exec, Matrix<const T> dy, Matrix<const T> x, Vector<const acc_t<T>> squares,
                         Vector<G> dmagnitude, bool accumulate) {
  REQUIRE(x.rows == dy.rows && x.cols == dy.cols && squares.count == x.cols && dmagnitude.count == x.cols,
          "dora_grad_magnitude: dy is [{}, {}], but x is [{}, {}], squares [{}], dmagnitude [{}]", dy.rows,
          dy.cols, x.rows, x.cols, squares.count, dmagnitude.count);
  const MagnitudeArrays<T, G> p{dy.data, x.data, squares.data, dmagnitude.data, x.rows, x.cols, accumulate};
  using Team = MagnitudeTeam<T, G>;
  static_assert(carried<Team, MagnitudeColumns<T, G>>);
  if constexpr (on_gpu)
    for_teams(exec, ceil_div(x.cols, magnitude_columns), Team::threads, 1, Team::shared_bytes, Team{p});
  else
    for_blocks<magnitude_columns>(exec, x.cols, MagnitudeColumns<T, G>{p});
}

ZTRAIN_INSTANCES(dora_squares)
ZTRAIN_GRADIENT_INSTANCES(dora_grad_magnitude)

}  // namespace ztrain::kernels
