#pragma once
// Threads of a GPU that work together, by number. Loops over rows are written against these operations alone
// (a class `Threads`: rank, size, sum, maximum, sync), so that the tests can run them with threads of the
// host. Included by kernel sources only.

#include <cstdint>

#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// All threads of a team. Sums are formed in an order that the size of the team alone determines.
class TeamThreads {
 public:
  KOKKOS_INLINE_FUNCTION explicit TeamThreads(const ThreadsTeam& team) : team_(team) {}
  KOKKOS_INLINE_FUNCTION int rank() const { return team_.team_rank(); }
  KOKKOS_INLINE_FUNCTION int size() const { return team_.team_size(); }
  /// Of each thread's part, in every thread.
  template <class A>
  KOKKOS_INLINE_FUNCTION A sum(A part) const {
    team_.team_reduce(Kokkos::Sum<A>(part));
    return part;
  }
  template <class A>
  KOKKOS_INLINE_FUNCTION A maximum(A part) const {
    team_.team_reduce(Kokkos::Max<A>(part));
    return part;
  }
  /// What threads wrote before is seen by all after.
  KOKKOS_INLINE_FUNCTION void sync() const { team_.team_barrier(); }

 private:
  const ThreadsTeam& team_;
};

/// The vector lanes of one thread of a team: neighbours in a warp. They need no sync: nothing is shared
/// between them but what sum and maximum return.
class LaneThreads {
 public:
  KOKKOS_INLINE_FUNCTION LaneThreads(const ThreadsTeam& team, int lanes) : team_(team), lanes_(lanes) {
    int rank = 0;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team_, lanes_), [&](const int lane) { rank = lane; });
    rank_ = rank;
  }
  KOKKOS_INLINE_FUNCTION int rank() const { return rank_; }
  KOKKOS_INLINE_FUNCTION int size() const { return lanes_; }
  template <class A>
  KOKKOS_INLINE_FUNCTION A sum(A part) const {
    A total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team_, lanes_), [&](int, A& into) { into += part; }, total);
    return total;
  }
  template <class A>
  KOKKOS_INLINE_FUNCTION A maximum(A part) const {
    A largest = part;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team_, lanes_), [&](int, A& into) { into = part > into ? part : into; },
        Kokkos::Max<A>(largest));
    return largest;
  }

 private:
  const ThreadsTeam& team_;
  int lanes_;
  int rank_;
};

/// The one thread of a CPU.
class SoleThread {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  template <class A>
  A sum(A part) const {
    return part;
  }
  template <class A>
  A maximum(A part) const {
    return part;
  }
  void sync() const {}
};

/// Threads for rows of this width, of which each takes up to `packs` packs: whole warps.
inline int threads_for(std::int64_t width, int packs) {
  const std::int64_t threads = round_up(ceil_div(width, packs * pack), warp_lanes);
  return static_cast<int>(threads < warp_lanes          ? warp_lanes
                          : threads > most_team_threads ? most_team_threads
                                                        : threads);
}

/// row.by(threads, i) by a team of a GPU.
template <class Row>
struct RowOfTeam {
  Row row;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    row.by(TeamThreads(team), static_cast<std::int64_t>(team.league_rank()));
  }
};

/// For each of `rows` rows: row(i) by one thread of a CPU, or row.by(threads, i) by so many of a GPU.
template <class Row>
void for_shared_rows(Exec& exec, std::int64_t rows, int threads, const Row& row) {
  static_assert(carried<RowOfTeam<Row>>, "capture less: see largest_functor");
  if constexpr (on_gpu)
    for_teams(exec, rows, threads, 1, 0, RowOfTeam<Row>{row});
  else
    for_rows(exec, rows, row);
}

/// row.by(threads, i) by a warp of a GPU.
template <class Row>
struct RowOfWarp {
  Row row;
  std::int64_t rows;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const std::int64_t i =
        static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (i < rows) row.by(LaneThreads(team, warp_lanes), i);
  }
};

/// For each of `rows` rows: row(i) by one thread of a CPU, or row.by(threads, i) by a warp of a GPU.
template <class Row>
void for_warp_rows(Exec& exec, std::int64_t rows, const Row& row) {
  static_assert(carried<RowOfWarp<Row>>, "capture less: see largest_functor");
  constexpr int together = 4;
  if constexpr (on_gpu)
    for_teams<1, together * warp_lanes>(exec, ceil_div(rows, together), together, warp_lanes, 0,
                                        RowOfWarp<Row>{row, rows});
  else
    for_rows(exec, rows, row);
}

}  // namespace ztrain::kernels
