#pragma once
// Vectors of head_dim elements that a warp of a GPU shares: lane l holds elements l, l + 32, l + 64, ... in
// registers, so that loads of a warp are of consecutive elements. On a CPU one thread holds them all.
// Included by kernel sources only.

#include <cmath>

#include "kernels/attention/online_softmax.hpp"
#include "kernels/launch/exec_kokkos.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// The one thread of a CPU.
class OneThread {
 public:
  static constexpr int width = 1;

  /// f(lane) in each lane.
  template <class F>
  void each(const F& f) const {
    f(0);
  }
  /// The sum of f(lane) over the lanes, in each of them, in an order that is always the same.
  template <class A, class F>
  A sum(const F& f) const {
    return f(0);
  }
  /// f() in one lane alone.
  template <class F>
  void once(const F& f) const {
    f();
  }
};

/// The lanes of one thread of a team: a warp.
class WarpLanes {
 public:
  static constexpr int width = 32;
  using Team = TeamLanes::Team;

  KOKKOS_INLINE_FUNCTION explicit WarpLanes(const Team& team) : team_(team) {}

  template <class F>
  KOKKOS_INLINE_FUNCTION void each(const F& f) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team_, width), f);
  }
  template <class A, class F>
  KOKKOS_INLINE_FUNCTION A sum(const F& f) const {
    A total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team_, width), [&](const int lane, A& part) { part += f(lane); }, total);
    return total;
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void once(const F& f) const {
    Kokkos::single(Kokkos::PerThread(team_), f);
  }

 private:
  const Team& team_;
};

using Warp = std::conditional_t<on_gpu, WarpLanes, OneThread>;

/// What one lane holds of a vector of up to max_dim elements.
template <class A, int max_dim>
struct Share {
  static constexpr int count = max_dim / Warp::width;
  A x[count];

  KOKKOS_INLINE_FUNCTION static int place(int lane, int j) { return j * Warp::width + lane; }

  KOKKOS_INLINE_FUNCTION void zero() {
    for (int j = 0; j < count; ++j) x[j] = 0;
  }
  /// Elements from dim on are zero.
  template <class T>
  KOKKOS_INLINE_FUNCTION void load(const T* from, int lane, int dim) {
#pragma unroll
    for (int j = 0; j < count; ++j) x[j] = place(lane, j) < dim ? static_cast<A>(from[place(lane, j)]) : A(0);
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION void store(T* to, int lane, int dim) const {
#pragma unroll
    for (int j = 0; j < count; ++j)
      if (place(lane, j) < dim) to[place(lane, j)] = static_cast<T>(x[j]);
  }
  /// As store; adds: to what is there.
  KOKKOS_INLINE_FUNCTION void put(A* to, int lane, int dim, bool adds) const {
#pragma unroll
    for (int j = 0; j < count; ++j)
      if (place(lane, j) < dim) to[place(lane, j)] = adds ? to[place(lane, j)] + x[j] : x[j];
  }
  KOKKOS_INLINE_FUNCTION void scale(A factor) {
#pragma unroll
    for (int j = 0; j < count; ++j) x[j] *= factor;
  }
  /// this += factor * other
  KOKKOS_INLINE_FUNCTION void add(A factor, const Share& other) {
#pragma unroll
    for (int j = 0; j < count; ++j) x[j] += factor * other.x[j];
  }
  /// This lane's part of the inner product.
  KOKKOS_INLINE_FUNCTION A dot(const Share& other) const {
    A sum = 0;
#pragma unroll
    for (int j = 0; j < count; ++j) sum += x[j] * other.x[j];
    return sum;
  }
};

/// The running softmax of one query over keys that come one by one: `out` is the sum of exp(score - maximum)
/// times the values so far.
template <class A, int max_dim>
struct Stream {
  A maximum = initial_maximum<A>;
  A sum = 0;
  Share<A, max_dim> out;

  /// One key of this score, with its value. Every lane of the warp has the same score.
  KOKKOS_INLINE_FUNCTION void add(A score, const Share<A, max_dim>& value) {
    const A next = score > maximum ? score : maximum;
    const A correction = std::exp(maximum - next), p = std::exp(score - next);
    maximum = next;
    sum = sum * correction + p;
    out.scale(correction);
    out.add(p, value);
  }
};

/// functor(const Warp&, row) by one warp of a GPU; several are a team.
template <class RowFunctor>
struct WarpRow {
  RowFunctor functor;
  std::int64_t rows;
  KOKKOS_INLINE_FUNCTION void operator()(const TeamLanes::Team& team) const {
    const std::int64_t row =
        static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (row < rows) functor(WarpLanes(team), row);
  }
};
template <class RowFunctor>
struct ThreadRow {
  RowFunctor functor;
  void operator()(std::int64_t row) const { functor(OneThread{}, row); }
};

/// functor(const Warp&, row) for each row in [0, rows), one warp (on a CPU: one thread) each.
template <class RowFunctor>
void for_warps(Exec& exec, std::int64_t rows, const RowFunctor& functor) {
  static_assert(carried<WarpRow<RowFunctor>>, "capture less: see largest_functor");
  if constexpr (on_gpu) {
    constexpr int team = 4;
    for_teams<1, team * WarpLanes::width>(exec, ceil_div(rows, team), team, WarpLanes::width, 0,
                                          WarpRow<RowFunctor>{functor, rows});
  } else {
    for_rows(exec, rows, ThreadRow<RowFunctor>{functor});
  }
}

}  // namespace ztrain::kernels
