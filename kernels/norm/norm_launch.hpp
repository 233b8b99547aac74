#pragma once
// How norms are launched, in all forms. Included by kernel sources named *_reduce.cpp alone.

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/norm/rmsnorm_rows.hpp"
#include "kernels/norm/rmsnorm_threads.hpp"

namespace ztrain::kernels {
namespace {

/// Columns of the weight's gradient on a CPU.
template <class A, class G>
struct CombineColumns {
  const A* partials;
  std::int64_t blocks, d;
  bool accumulate;
  G* dweight;
  void operator()(std::int64_t begin, std::int64_t length) const {
    A sum[quantum] = {};
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t i = 0; i < length; ++i) sum[i] += partials[block * d + begin + i];
    }
    G* const out = dweight + begin;
    for (std::int64_t i = 0; i < length; ++i) {
      out[i] = static_cast<G>(accumulate ? static_cast<A>(out[i]) + sum[i] : sum[i]);
    }
  }
};

/// Rows that one call takes on a CPU.
constexpr std::int64_t rows_together = 32;

constexpr Target target = on_gpu ? Target::cuda : Target::cpu;

// On a GPU rows up to most_lane_width share teams: each has as many lanes of a warp as it has packs (two each
// beyond a warp). Wider ones have a team.
constexpr std::int64_t most_lane_width = 2 * warp_lanes * pack;

/// Lanes for a row of at most most_lane_width elements: 8, 16 or 32.
constexpr int lanes_for(std::int64_t width) {
  return width <= 8 * pack ? 8 : width <= 16 * pack ? 16 : warp_lanes;
}

template <NormForm form, bool with_addend, bool whole, int packs, class T>
struct ForwardTeam {
  NormArrays<T> a;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    norm_row<form, with_addend, whole, packs>(TeamThreads(team), a, team.league_rank());
  }
};

template <NormForm form, bool with_addend, int packs, class T>
struct ForwardLanes {
  NormArrays<T> a;
  std::int64_t rows;
  int lanes;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const LaneThreads threads(team, lanes);
    const std::int64_t row =
        static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (row < rows) norm_row<form, with_addend, true, packs>(threads, a, row);
  }
};

template <NormForm form, bool with_addend, int packs, class T>
void forward_lanes(Exec& exec, const NormArrays<T>& a, std::int64_t rows) {
  const int lanes = lanes_for(a.d), together = 128 / lanes;
  for_teams(exec, ceil_div(rows, together), together, lanes, 0,
            ForwardLanes<form, with_addend, packs, T>{a, rows, lanes});
}

template <class T>
bool whole(const NormArrays<T>& a) {
  return a.d % pack == 0 && on_words(a.x) && on_words(a.addend) && on_words(a.weight) && on_words(a.bias) &&
         on_words(a.sum) && on_words(a.y);
}

template <NormForm form, bool with_addend, class T>
void forward(Exec& exec, const NormArrays<T>& a, std::int64_t rows) {
  static_assert(carried<ForwardTeam<form, with_addend, true, 4, T>, ForwardLanes<form, with_addend, 2, T>>);
  if constexpr (!on_gpu) {
    for_blocks<rows_together>(exec, rows, ForwardRows<form, with_addend, T>{a});
  } else if (!whole(a)) {
    for_teams(exec, rows, threads_for(a.d, 1), 1, 0, ForwardTeam<form, with_addend, false, 1, T>{a});
  } else if (a.d > most_lane_width) {
    for_teams(exec, rows, threads_for(a.d, 4), 1, 0, ForwardTeam<form, with_addend, true, 4, T>{a});
  } else if (a.d > most_lane_width / 2) {
    forward_lanes<form, with_addend, 2>(exec, a, rows);
  } else {
    forward_lanes<form, with_addend, 1>(exec, a, rows);
  }
}

/// A pack of x, dy and the weight and its sums fit the registers of a thread that shares its multiprocessor
/// with more than its team.
template <class T>
constexpr bool narrow = sizeof(T) == 2;

/// A block of rows.
template <NormForm form, bool whole, int packs, class T>
struct BackwardTeam {
  NormGradientArrays<T> a;
  std::int64_t height;
  acc_t<T>* partials;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const std::int64_t begin = team.league_rank() * height;
    const std::int64_t end = begin + height < a.rows ? begin + height : a.rows;
    norm_gradient_rows<form, whole, packs>(TeamThreads(team), a, begin, end, 1,
                                           partials + team.league_rank() * a.d);
  }
};

/// A block of rows that the threads of a team, of several lanes each, take by turns; their sums are added in
/// order.
template <NormForm form, int packs, class T>
struct BackwardLanes {
  using A = acc_t<T>;
  NormGradientArrays<T> a;
  std::int64_t height;
  A* partials;
  int lanes;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const int size = team.team_size();
    A* const sums = static_cast<A*>(team.team_scratch(0).get_shmem_aligned(size * a.d * sizeof(A), 16));
    const std::int64_t begin = team.league_rank() * height;
    const std::int64_t end = begin + height < a.rows ? begin + height : a.rows;
    norm_gradient_rows<form, true, packs>(LaneThreads(team, lanes), a, begin + team.team_rank(), end, size,
                                          sums + team.team_rank() * a.d);
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, static_cast<int>(a.d)), [&](const int i) {
      A sum = 0;
      for (int thread = 0; thread < size; ++thread) sum += sums[thread * a.d + i];
      partials[team.league_rank() * a.d + i] = sum;
    });
  }
};

template <NormForm form, int packs, class T>
void backward_lanes(Exec& exec, const NormGradientArrays<T>& a, std::int64_t height, acc_t<T>* partials) {
  const int lanes = lanes_for(a.d), together = 256 / lanes;
  const std::size_t scratch = static_cast<std::size_t>(together * a.d) * sizeof(acc_t<T>) + 64;
  // Two packs of 16 bits in three teams would be spilt.
  constexpr int resident = narrow<T> && packs == 1 ? 3 : 2;
  for_teams<resident, 256>(exec, ceil_div(a.rows, height), together, lanes, scratch,
                           BackwardLanes<form, packs, T>{a, height, partials, lanes});
}

template <class T>
bool whole(const NormGradientArrays<T>& a) {
  return a.d % pack == 0 && on_words(a.x) && on_words(a.weight) && on_words(a.dy) && on_words(a.addend) &&
         on_words(a.dx);
}

template <NormForm form, class T>
void backward(Exec& exec, const NormGradientArrays<T>& a, std::int64_t height, acc_t<T>* partials) {
  static_assert(carried<BackwardTeam<form, true, 4, T>, BackwardLanes<form, 2, T>>);
  [[maybe_unused]] const std::int64_t blocks = ceil_div(a.rows, height);
  if constexpr (!on_gpu) {
    if (a.addend != nullptr)
      for_rows(exec, blocks, BackwardBlock<form, true, T>{a, height, partials});
    else
      for_rows(exec, blocks, BackwardBlock<form, false, T>{a, height, partials});
  } else if (!whole(a)) {
    for_teams(exec, blocks, threads_for(a.d, 1), 1, 0, BackwardTeam<form, false, 1, T>{a, height, partials});
  } else if (a.d > 2 * pack * most_team_threads) {
    for_teams(exec, blocks, most_team_threads, 1, 0, BackwardTeam<form, true, 4, T>{a, height, partials});
  } else if (a.d > pack * most_team_threads) {
    for_teams(exec, blocks, threads_for(a.d, 2), 1, 0, BackwardTeam<form, true, 2, T>{a, height, partials});
  } else if (a.d > most_lane_width) {
    for_teams<narrow<T> ? 2 : 1>(exec, blocks, threads_for(a.d, 1), 1, 0,
                                 BackwardTeam<form, true, 1, T>{a, height, partials});
  } else if (a.d > most_lane_width / 2) {
    backward_lanes<form, 2>(exec, a, height, partials);
  } else {
    backward_lanes<form, 1>(exec, a, height, partials);
  }
}

template <class A, class G>
struct CombineTeam {
  const A* partials;
  std::int64_t blocks, d;
  bool accumulate;
  G* dweight;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const TeamThreads threads(team);
    A* const scratch = static_cast<A*>(team.team_scratch(0).get_shmem(threads.size() * sizeof(A)));
    combine_columns(threads, partials, blocks, d, std::int64_t{warp_lanes} * team.league_rank(), accumulate,
                    dweight, scratch);
  }
};

template <class A, class G>
void combine_partials(Exec& exec, const A* partials, std::int64_t blocks, Vector<G> dweight,
                      bool accumulate) {
  static_assert(carried<CombineTeam<A, G>>);
  if constexpr (!on_gpu) {
    for_blocks(exec, dweight.count,
               CombineColumns<A, G>{partials, blocks, dweight.count, accumulate, dweight.data});
  } else {
    constexpr int threads = 256;
    for_teams(exec, ceil_div(dweight.count, warp_lanes), threads, 1, threads * sizeof(A) + 64,
              CombineTeam<A, G>{partials, blocks, dweight.count, accumulate, dweight.data});
  }
}

/// Runs a backward whose sums for the weight are in the workspace.
template <NormForm form, class T, class G>
void backward_and_combine(Exec& exec, const NormGradientArrays<T>& a, Vector<G> dweight, bool accumulate,
                          void* workspace) {
  auto* const partials = static_cast<acc_t<T>*>(workspace);
  const std::int64_t height = rmsnorm_rows_per_block(a.rows, target);
  backward<form, T>(exec, a, height, partials);
  combine_partials<acc_t<T>, G>(exec, partials, ceil_div(a.rows, height), dweight, accumulate);
}

template <class T>
void check_forward(Matrix<const T> x, Vector<const T> weight, Matrix<T> y, std::int64_t rows) {
  REQUIRE(y.rows == x.rows && y.cols == x.cols && weight.count == x.cols && rows == x.rows,
          "norm: x is [{}, {}], but y is [{}, {}], weight [{}], what is kept of rows [{}]", x.rows, x.cols,
          y.rows, y.cols, weight.count, rows);
}

template <class T, class G>
void check_backward(Matrix<const T> x, Vector<const T> weight, std::int64_t rows, Matrix<const T> dy,
                    Matrix<T> dx, Vector<G> dweight) {
  REQUIRE(dy.rows == x.rows && dy.cols == x.cols && dx.rows == x.rows && dx.cols == x.cols &&
              rows == x.rows && weight.count == x.cols && dweight.count == x.cols,
          "norm backward: x is [{}, {}], but dy is [{}, {}], dx [{}, {}], what is kept of rows [{}], weight "
          "[{}], dweight [{}]",
          x.rows, x.cols, dy.rows, dy.cols, dx.rows, dx.cols, rows, weight.count, dweight.count);
}

}  // namespace
}  // namespace ztrain::kernels
