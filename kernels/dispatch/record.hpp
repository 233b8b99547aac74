#pragma once
// Rows of tokens on their way to the ranks that have their experts, and back. A group of M ranks divides E
// experts: member m has experts [m E / M, (m + 1) E / M). Rows travel in slots: a buffer has a slot for each
// member, and all slots have room for equally many rows. Only the first rows of a slot are in use.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// Constants that the nodes of one layer share.
struct SlotsOfRows {
  std::int64_t slot = 0;  ///< rows of a slot
  std::int64_t axes = 0;  ///< bits of the AxisSet over which the group extends
  static constexpr auto fields() {
    return std::tuple{Given{"slot", &SlotsOfRows::slot}, Given{"axes", &SlotsOfRows::axes}};
  }
};

/// A node: offsets [E + 1] of this rank's rows -> routes, offsets [E / M + 1] of the rows that its experts
/// get, all int32, and overflow [1], fp64. Overflow is the number of members to which this rank has more rows
/// to send than a slot takes.
struct RouteRows : SlotsOfRows {
  static constexpr std::string_view op = "route_rows";
  enum In : std::size_t { offsets };
  enum Out : std::size_t { routes, own_offsets, overflow };
  static constexpr Count reads = 1, writes = 3;
};
/// A node: rows [T k, d] sorted by expert, routes -> y [M slot, d]: the rows of this rank's experts, sorted
/// by expert, then by member, then in the order that they had. Rows of y behind the last one are not defined.
struct ToExperts : SlotsOfRows {
  static constexpr std::string_view op = "to_experts";
  enum In : std::size_t { rows, routes };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
};
/// A node: slots [T, k] of SortByExpert, rows [M slot, d], routes -> y [T k, d]: brings the rows back to the
/// ranks of their tokens. The op does not read `slots`, whose placement alone says which part of y a rank
/// has.
struct FromExperts : SlotsOfRows {
  static constexpr std::string_view op = "from_experts";
  enum In : std::size_t { slots, rows, routes };
  enum Out : std::size_t { y };
  static constexpr Count reads = 3, writes = 1;
};

/// gathered [M, E + 1], the offsets of all members -> routes, own_offsets, overflow of member `index`, as
/// RouteRows has them.
struct MakeRoutes {
  static constexpr std::string_view op = "make_routes";
  enum In : std::size_t { gathered };
  enum Out : std::size_t { routes, own_offsets, overflow };
  static constexpr Count reads = 1, writes = 3;
  std::int64_t index = 0;
  std::int64_t slot = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"index", &MakeRoutes::index}, Given{"slot", &MakeRoutes::slot}};
  }
};

/// overflow fp64 [n]... -> sum [1], fp64: the sum of all their elements.
struct CountOverflows : NoConstants {
  static constexpr std::string_view op = "count_overflows";
  enum Out : std::size_t { sum };
  static constexpr Count reads{0, any_number}, writes = 1;
};

/// x, routes -> y: the ops that copy rows between a buffer of rows and one of slots.
struct MoveRows {
  enum In : std::size_t { x, routes };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  std::int64_t members = 1;  ///< M
  static constexpr auto fields() { return std::tuple{Given{"members", &MoveRows::members}}; }
};
/// Rows sorted by expert -> slots of the members that have the experts.
struct RowsToSlots : MoveRows {
  static constexpr std::string_view op = "rows_to_slots";
};
/// The reverse of RowsToSlots. A row that had no room in its slot becomes 0.
struct SlotsToRows : MoveRows {
  static constexpr std::string_view op = "slots_to_rows";
};
/// Slots that came from the members -> rows sorted by this rank's experts.
struct SlotsToExperts : MoveRows {
  static constexpr std::string_view op = "slots_to_experts";
};
/// The reverse of SlotsToExperts.
struct ExpertsToSlots : MoveRows {
  static constexpr std::string_view op = "experts_to_slots";
};

}  // namespace ztrain
