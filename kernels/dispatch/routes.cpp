#include "kernels/dispatch/routes.hpp"

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {
namespace {

/// Names the parts of routes, which may be const.
template <class T>
struct RoutesOf {
  T* data = nullptr;
  std::int64_t members = 0, experts = 0;  ///< members of the group, and experts of the rank

  KOKKOS_INLINE_FUNCTION T& sent(std::int64_t m) const { return data[m]; }
  KOKKOS_INLINE_FUNCTION T& comes(std::int64_t m) const { return data[members + m]; }
  KOKKOS_INLINE_FUNCTION T& sent_again(std::int64_t m) const { return data[2 * members + m]; }
  KOKKOS_INLINE_FUNCTION T& first(std::int64_t m) const { return data[3 * members + m]; }
  /// With e = experts it returns where the rows of the last expert end.
  KOKKOS_INLINE_FUNCTION T& in_slot(std::int64_t m, std::int64_t e) const {
    return data[4 * members + m * (experts + 1) + e];
  }
  KOKKOS_INLINE_FUNCTION T& in_rows(std::int64_t m, std::int64_t e) const {
    return data[members * (experts + 5) + m * experts + e];
  }
  /// Returns the last i in [0, count) with begin_of(i) <= row. The begins ascend.
  template <class Begin>
  KOKKOS_INLINE_FUNCTION static std::int64_t last_at(std::int64_t count, std::int64_t row,
                                                     const Begin& begin_of) {
    std::int64_t low = 0, high = count;
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (begin_of(middle) <= row ? low : high) = middle;
    }
    return low;
  }
};
using Read = RoutesOf<const std::int32_t>;

Read read(const Routes& routes) {
  return {routes.data, routes.members, routes.experts};
}

KOKKOS_INLINE_FUNCTION std::int32_t at_most(std::int64_t slot, std::int32_t rows) {
  return rows < slot ? rows : static_cast<std::int32_t>(slot);
}

/// Writes the counts and offsets of the rows that member m and this rank send to each other.
struct RouteOfMember {
  Matrix<const std::int32_t> gathered;
  std::int64_t index, slot;
  RoutesOf<std::int32_t> to;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t m) const {
    const std::int32_t *own = gathered.data + index * gathered.cols + m * to.experts,
                       *theirs = gathered.data + m * gathered.cols + index * to.experts;
    to.sent(m) = to.sent_again(m) = at_most(slot, own[to.experts] - own[0]);
    to.comes(m) = at_most(slot, theirs[to.experts] - theirs[0]);
    to.first(m) = own[0];
    for (std::int64_t e = 0; e <= to.experts; ++e) to.in_slot(m, e) = at_most(slot, theirs[e] - theirs[0]);
  }
};

/// Finds where the rows from member i % M for this rank's expert i / M begin; for the last i, where all rows
/// end, and counts the overflows.
struct BeginOfRows {
  RoutesOf<std::int32_t> to;
  const std::int32_t* own;  ///< offsets of this rank's rows
  std::int64_t slot;
  std::int32_t* own_offsets;
  double* overflow;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t expert = i / to.members, member = i % to.members;
    std::int32_t begin = 0;
    for (std::int64_t m = 0; m < to.members; ++m) begin += to.in_slot(m, m < member ? expert + 1 : expert);
    if (member == 0) own_offsets[expert] = begin;
    if (expert < to.experts) {
      to.in_rows(member, expert) = begin;
      return;
    }
    *overflow = 0;
    for (std::int64_t m = 0; m < to.members; ++m)
      if (own[(m + 1) * to.experts] - own[m * to.experts] > slot) ++*overflow;
  }
};

template <class T>
std::int64_t slot_of(const char* what, Matrix<const T> slots, Matrix<const T> rows, const Routes& routes) {
  REQUIRE(routes.members > 0 && slots.rows % routes.members == 0 && slots.cols == rows.cols,
          "{}: slots for {} members are [{}, {}], and rows [{}, {}]", what, routes.members, slots.rows,
          slots.cols, rows.rows, rows.cols);
  return slots.rows / routes.members;
}

/// Returns the row, in the order of this rank's experts, that row i of the slots is; -1: the row is not in
/// use.
KOKKOS_INLINE_FUNCTION std::int64_t row_of_slot(const Read& r, std::int64_t slot, std::int64_t i) {
  const std::int64_t member = i / slot, inside = i % slot;
  if (inside >= r.comes(member)) return -1;
  const std::int64_t expert =
      Read::last_at(r.experts, inside, [&](std::int64_t e) { return r.in_slot(member, e); });
  return r.in_rows(member, expert) + inside - r.in_slot(member, expert);
}

/// Copies slots of members to rows by expert, or such rows to slots. Both have as many rows.
template <bool to_rows, class T>
void move_by_expert(Exec& exec, Matrix<const T> from, const Routes& routes, Matrix<T> to) {
  const std::int64_t slot = slot_of<T>("rows of experts", from, to, routes);
  const Read r = read(routes);
  for_row_pieces<pack_of<T>>(
      exec, from.rows, from.cols, KOKKOS_LAMBDA(const std::int64_t i, const PieceOf<T> p) {
        if (const std::int64_t row = row_of_slot(r, slot, i); row >= 0)
          p.copy(from.data + (to_rows ? i : row) * from.cols, to.data + (to_rows ? row : i) * from.cols);
      });
}

}  // namespace

void make_routes(Exec& exec, Matrix<const std::int32_t> gathered, std::int64_t index, std::int64_t slot,
                 Vector<std::int32_t> routes, Vector<std::int32_t> own_offsets, double* overflow) {
  const std::int64_t members = gathered.rows, own = own_offsets.count - 1;
  REQUIRE(gathered.cols == members * own + 1 && routes.count == route_elements(members, own) && index >= 0 &&
              index < members,
          "routes of member {}: offsets are [{}, {}], {} routes, {} offsets of its own", index, members,
          gathered.cols, routes.count, own_offsets.count);
  const RoutesOf<std::int32_t> to{routes.data, members, own};
  for_rows(exec, members, RouteOfMember{gathered, index, slot, to});
  for_rows(exec, members * own + 1,
           BeginOfRows{to, gathered.data + index * gathered.cols, slot, own_offsets.data, overflow});
}

template <class T>
void rows_to_slots(Exec& exec, Matrix<const T> rows, Routes routes, Matrix<T> slots) {
  const std::int64_t slot = slot_of<T>("rows to slots", slots, rows, routes);
  const Read r = read(routes);
  for_row_pieces<pack_of<T>>(
      exec, slots.rows, slots.cols, KOKKOS_LAMBDA(const std::int64_t i, const PieceOf<T> p) {
        const std::int64_t member = i / slot, inside = i % slot;
        if (inside < r.sent(member))
          p.copy(rows.data + (r.first(member) + inside) * rows.cols, slots.data + i * rows.cols);
      });
}

template <class T>
void slots_to_rows(Exec& exec, Matrix<const T> slots, Routes routes, Matrix<T> rows) {
  const std::int64_t slot = slot_of<T>("slots to rows", slots, rows, routes);
  const Read r = read(routes);
  for_row_pieces<pack_of<T>>(
      exec, rows.rows, rows.cols, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<T> p) {
        const std::int64_t member = Read::last_at(r.members, row, [&](std::int64_t m) { return r.first(m); });
        const std::int64_t inside = row - r.first(member);
        if (inside < r.sent(member))
          p.copy(slots.data + (member * slot + inside) * rows.cols, rows.data + row * rows.cols);
        else
          p.fill_zero(rows.data + row * rows.cols);
      });
}

template <class T>
void slots_to_experts(Exec& exec, Matrix<const T> slots, Routes routes, Matrix<T> rows) {
  move_by_expert<true>(exec, slots, routes, rows);
}

template <class T>
void experts_to_slots(Exec& exec, Matrix<const T> rows, Routes routes, Matrix<T> slots) {
  move_by_expert<false>(exec, rows, routes, slots);
}

ZTRAIN_INSTANCES(rows_to_slots)
ZTRAIN_INSTANCES(slots_to_rows)
ZTRAIN_INSTANCES(slots_to_experts)
ZTRAIN_INSTANCES(experts_to_slots)

}  // namespace ztrain::kernels
