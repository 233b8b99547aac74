#pragma once
// How the light kernels are launched. One source serves CPUs and GPUs: a kernel's loops are functions of
// (begin, count) with __restrict parameters, which on a CPU are called for whole rows or quanta and
// vectorised by the compiler, and on a GPU by each thread for a pack of 16 bytes or more. Included by kernel
// sources only.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec_kokkos.hpp"

namespace ztrain::kernels {

/// Element-wise results and norm partials do not depend on where a slice begins as long as it begins on a
/// multiple of this many elements, and ends on one or at the end of the array: each quantum is computed
/// alone, by the same code.
inline constexpr std::int64_t quantum = 256;

/// Elements that a GPU thread takes at once: 16 bytes of a 16-bit type.
inline constexpr std::int64_t pack = 8;

/// Whether kernels run on another processor than the host's: many threads with little memory each.
inline constexpr bool on_gpu =
    !Kokkos::SpaceAccessibility<Kokkos::HostSpace, Kokkos::DefaultExecutionSpace::memory_space>::accessible;

/// Whether a kernel's loops over T are to be done in fp32 (kernels/launch/wide.hpp).
template <class T>
inline constexpr bool widens = !on_gpu && sizeof(T) == 2;

/// Bytes of a functor: Kokkos hands larger ones to a GPU through memory that the host has to wait for, which
/// cannot be captured in a graph either.
inline constexpr std::size_t largest_functor = 256;

/// Whether launches carry these functors. Asserted where they are launched and, for those that a GPU alone
/// launches, beside what a CPU has instead: so builds for CPUs find the one that is too large.
template <class... Functor>
inline constexpr bool carried = ((sizeof(Functor) <= largest_functor) && ...);

/// functor(row) for each row in [0, rows), one thread each; rows are independent.
template <class RowFunctor>
void for_rows(Exec& exec, std::int64_t rows, const RowFunctor& functor) {
  static_assert(carried<RowFunctor>, "capture less: see largest_functor");
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  if (rows > 0) Kokkos::parallel_for(Policy(exec.space, 0, rows), functor);
}

/// functor(begin, length) for consecutive blocks of `block` elements; only the last one may be shorter. The
/// length of a full block is a constant to the compiler. One thread each.
template <std::int64_t block = quantum, class BlockFunctor>
void for_blocks(Exec& exec, std::int64_t count, const BlockFunctor& functor) {
  for_rows(
      exec, ceil_div(count, block), KOKKOS_LAMBDA(const std::int64_t index) {
        const std::int64_t begin = index * block;
        if (begin + block <= count) {
          functor(begin, block);
        } else {
          functor(begin, count - begin);
        }
      });
}

/// The threads that share a row. On a CPU one, which takes whole loops.
class OneLane {
 public:
  /// f(begin, length) for pieces that together are [0, n).
  template <class F>
  void each(std::int64_t n, const F& f) const {
    if (n > 0) f(std::int64_t{0}, n);
  }
  /// f(i) for each i in [0, n).
  template <class F>
  void items(int n, const F& f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  /// The largest f(begin, length) over such pieces, in every thread; `none` where n is 0.
  template <class A, class F>
  A maximum(std::int64_t n, A none, const F& f) const {
    return n > 0 ? f(std::int64_t{0}, n) : none;
  }
  /// f() in one thread alone.
  template <class F>
  void once(const F& f) const {
    f();
  }
  /// What each() wrote before is seen by all threads after.
  void sync() const {}
};

inline constexpr int most_team_threads = 512;
inline constexpr int warp_lanes = 32;

/// Compiled for teams of at most `most` threads, of which `resident` share a multiprocessor: registers
/// suffice for that many.
template <int most, int resident>
using ThreadsPolicy = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace, Kokkos::LaunchBounds<most, resident>>;
using ThreadsTeam = typename ThreadsPolicy<most_team_threads, 1>::member_type;

/// On a GPU a team of whole warps.
class TeamLanes {
 public:
  using Team = ThreadsTeam;

  KOKKOS_INLINE_FUNCTION explicit TeamLanes(const Team& team) : team_(team) {}

  template <class F>
  KOKKOS_INLINE_FUNCTION void each(std::int64_t n, const F& f) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team_, pieces(n)), [&](const int i) { piece(i, n, f); });
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void items(int n, const F& f) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team_, n), [&](const int i) { f(i); });
  }
  template <class A, class F>
  KOKKOS_INLINE_FUNCTION A maximum(std::int64_t n, A none, const F& f) const {
    A largest = none;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team_, pieces(n)),
        [&](const int i, A& part) {
          const A value = piece(i, n, f);
          part = value > part ? value : part;
        },
        Kokkos::Max<A>(largest));
    return n > 0 ? largest : none;
  }
  template <class F>
  KOKKOS_INLINE_FUNCTION void once(const F& f) const {
    Kokkos::single(Kokkos::PerTeam(team_), f);
  }
  KOKKOS_INLINE_FUNCTION void sync() const { team_.team_barrier(); }

 private:
  KOKKOS_INLINE_FUNCTION static int pieces(std::int64_t n) { return static_cast<int>((n + pack - 1) / pack); }
  template <class F>
  KOKKOS_INLINE_FUNCTION static auto piece(int i, std::int64_t n, const F& f) {
    const std::int64_t begin = i * pack;
    return begin + pack <= n ? f(begin, pack) : f(begin, n - begin);
  }

  const Team& team_;
};

using Lanes = std::conditional_t<on_gpu, TeamLanes, OneLane>;

/// A row by the one thread of a CPU.
template <class RowFunctor>
struct WholeRow {
  RowFunctor functor;
  void operator()(std::int64_t row) const { functor(OneLane{}, row); }
};

/// A row by a team of a GPU.
template <class RowFunctor>
struct TeamRow {
  RowFunctor functor;
  KOKKOS_INLINE_FUNCTION void operator()(const TeamLanes::Team& team) const {
    functor(TeamLanes(team), static_cast<std::int64_t>(team.league_rank()));
  }
};

/// Warps for rows of this width: each thread takes up to four packs of it, in teams of at most
/// most_team_threads.
inline int warps_for(std::int64_t width) {
  constexpr std::int64_t most = most_team_threads / warp_lanes;
  const std::int64_t warps = ceil_div(width, warp_lanes * pack * 4);
  return static_cast<int>(warps < 1 ? 1 : warps > most ? most : warps);
}

/// Teams are numbered by an int: throws Error where there are more.
inline int team_count(std::int64_t teams) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  REQUIRE(teams <= most, "a kernel over {} rows: a launch takes at most {}; use smaller micro-batches", teams,
          most);
  return static_cast<int>(teams);
}

/// functor(team) for each of `teams` teams of threads x lanes, with scratch bytes of memory that they share.
template <int resident = 1, int most = most_team_threads, class Functor>
void for_teams(Exec& exec, std::int64_t teams, int threads, int lanes, std::size_t scratch,
               const Functor& functor) {
  static_assert(carried<Functor>, "capture less: see largest_functor");
  if (teams <= 0) return;
  ThreadsPolicy<most, resident> policy(exec.space, team_count(teams), threads, lanes);
  if (scratch > 0) policy.set_scratch_size(0, Kokkos::PerTeam(scratch));
  Kokkos::parallel_for(policy, functor);
}

/// functor(const Lanes&, row) for each row in [0, rows); rows have `width` elements, which the lanes share.
template <class RowFunctor>
void for_wide_rows(Exec& exec, std::int64_t rows, std::int64_t width, const RowFunctor& functor) {
  static_assert(carried<TeamRow<RowFunctor>>, "capture less: see largest_functor");
  if constexpr (on_gpu) {
    for_teams(exec, rows, warps_for(width), warp_lanes, 0, TeamRow<RowFunctor>{functor});
  } else {
    for_rows(exec, rows, WholeRow<RowFunctor>{functor});
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> load(T value) {
  return static_cast<acc_t<T>>(value);
}

}  // namespace ztrain::kernels
