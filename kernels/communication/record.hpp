#pragma once
// What ranks exchange: collectives and messages, conversions between placements of a value on the ranks of an
// axis, and what goes between the stages of a pipeline. An op that communicates says on Op::comm with whom.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain::program {

/// A node that converts: x -> y.
struct OverAxes {
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  std::int64_t axes = 0;  ///< bits of an AxisSet
  static constexpr auto fields() { return std::tuple{Given{"axes", &OverAxes::axes}}; }
};
struct CopyToAxis : OverAxes {
  static constexpr std::string_view op = "copy_to_axis";
};
struct ReduceFromAxis : OverAxes {
  static constexpr std::string_view op = "reduce_from_axis";
};
struct GatherFromAxis : OverAxes {
  static constexpr std::string_view op = "gather_from_axis";
};
struct ScatterToAxis : OverAxes {
  static constexpr std::string_view op = "scatter_to_axis";
};
struct TokensToColumns : OverAxes {
  static constexpr std::string_view op = "tokens_to_columns";
};
struct ColumnsToTokens : OverAxes {
  static constexpr std::string_view op = "columns_to_tokens";
};
/// x [outer, inner, n] -> y [inner, outer, n]; n: what is left.
struct SwapBlocks {
  static constexpr std::string_view op = "swap_blocks";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  std::int64_t outer = 0, inner = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"outer", &SwapBlocks::outer}, Given{"inner", &SwapBlocks::inner}};
  }
};
/// What a node says of a value that goes from a stage of the pipeline to the next. Its gradient, where one is
/// wanted, comes back the same way.
struct StageMessage {
  std::int64_t boundary = 0;  ///< between stage boundary - 1 and stage boundary
  std::int64_t peer = 0;      ///< index of the other rank over the axis pipeline
  bool onward = true;         ///< from a rank of the ring to the next; else to the previous one
  bool gradient = true;
  std::int64_t split_over = 0;    ///< bits of the AxisSet over which ranks have parts of its tokens
  std::int64_t partial_over = 0;  ///< bits of the AxisSet over which ranks have parts of a sum
  bool beside = false;  ///< another value goes to the same stage in the same turn, on streams of its own
  static constexpr auto fields() {
    return std::tuple{
        Given{"boundary", &StageMessage::boundary},     Given{"peer", &StageMessage::peer},
        Given{"onward", &StageMessage::onward},         Given{"gradient", &StageMessage::gradient},
        Given{"split_over", &StageMessage::split_over}, Unusual{"partial_over", &StageMessage::partial_over},
        Unusual{"beside", &StageMessage::beside}};
  }
};
/// -> y, of the stage before.
struct FromStage : StageMessage {
  static constexpr std::string_view op = "from_stage";
  enum Out : std::size_t { y };
  static constexpr Count reads = 0, writes = 1;
};
/// x, to the stage behind -> a value that nothing reads: a name for the gradient that comes back.
struct ToStage : StageMessage {
  static constexpr std::string_view op = "to_stage";
  enum In : std::size_t { x };
  enum Out : std::size_t { sent };
  static constexpr Count reads = 1, writes = 1;
};
/// x [n, d] -> its place in y [ranks n, d], a view: the rows of this rank among the ranks of the axes.
struct OwnRows : OverAxes {
  static constexpr std::string_view op = "own_rows";
};
/// own [n, d], others [(ranks - 1) n, d] -> sum [n, d]: of what each rank of the axes gives to these rows, in
/// the order of ranks (exchange_slot of layout/comm_cost.hpp), added in fp32 and rounded once: a
/// reduce-scatter's sum.
struct SumOfRanks : OverAxes {
  static constexpr std::string_view op = "sum_of_ranks";
  enum In : std::size_t { own, others };
  enum Out : std::size_t { sum };
  static constexpr Count reads = 2, writes = 1;
};
/// shard [S] -> full [N S]: slot r is the shard of the group's r-th member.
struct AllGather : NoConstants {
  static constexpr std::string_view op = "all_gather";
  enum In : std::size_t { shard };
  enum Out : std::size_t { full };
  static constexpr Count reads = 1, writes = 1;
};
/// full [N S] -> shard [s], workspace: elements [begin, begin + s) of each of the N slots are summed.
struct ReduceScatter {
  static constexpr std::string_view op = "reduce_scatter";
  enum In : std::size_t { full };
  enum Out : std::size_t { shard, workspace };
  static constexpr Count reads{1, 2}, writes = 2;
  bool accumulate = false;
  std::int64_t begin = 0;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &ReduceScatter::accumulate},
                      Given{"begin", &ReduceScatter::begin}};
  }
};
/// y is the sum of x over the group, the same on every member.
struct AllReduce : NoConstants {
  static constexpr std::string_view op = "all_reduce";
  enum In : std::size_t { x };
  enum Out : std::size_t { y, workspace };
  static constexpr Count reads = 1, writes = 2;
};
/// x [N S] -> y [N S]: slot s of y is slot r of member s, of which this is member r.
struct AllToAll : OneToOne {
  static constexpr std::string_view op = "all_to_all";
};
/// x [N slot, d], sizes -> y [N slot, d]: exchanges slots as AllToAll does, but only the first rows of
/// each. sizes, int32, are the numbers of rows that go to each member, that come from each, and again that go
/// to each. With `back` the rows that came are sent, and those that went are received.
struct AllToAllRows {
  static constexpr std::string_view op = "all_to_all_rows";
  enum In : std::size_t { x, sizes };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  bool back = false;
  static constexpr auto fields() { return std::tuple{Given{"back", &AllToAllRows::back}}; }
};
/// x -> y: x of the member `peer` places before this one in the ring.
struct Shift : OneToOne {
  static constexpr std::string_view op = "shift";
};
/// The root (peer) reads x, the others write it.
struct Broadcast : OneToOne {
  static constexpr std::string_view op = "broadcast";
  static constexpr Count reads{0, 1}, writes{0, 1};
};
/// Both sides of a message between stages of a pipeline have these constants.
struct Message {
  std::int64_t boundary = 0;    ///< between stage boundary - 1 and stage boundary; 0: of no pipeline
  std::int64_t split_over = 0;  ///< bits of the AxisSet over which ranks of a stage have parts of its tokens
  std::int64_t partial_over = 0;  ///< bits of the AxisSet over which they have parts of a sum
  static constexpr auto fields() {
    return std::tuple{Unusual{"boundary", &Message::boundary}, Unusual{"split_over", &Message::split_over},
                      Unusual{"partial_over", &Message::partial_over}};
  }
};
/// x, to the member at index peer of the group.
struct Send : Message {
  static constexpr std::string_view op = "send";
  enum In : std::size_t { x };
  static constexpr Count reads = 1, writes = 0;
};
/// -> y, from it.
struct Recv : Message {
  static constexpr std::string_view op = "recv";
  enum Out : std::size_t { y };
  static constexpr Count reads = 0, writes = 1;
};

}  // namespace ztrain::program
