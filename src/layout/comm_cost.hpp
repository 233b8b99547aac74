#pragma once
// Bytes that our collectives send and the workspace they need, and what checkpoints go through, as pure
// arithmetic: the plan agrees with who communicates and writes, because all call this.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "layout/sum_group.hpp"

namespace ztrain {

/// Bytes of a snapshot in memory that a rank sends to another node at once; it has room for as many that
/// come.
inline constexpr std::int64_t snapshot_part = std::int64_t{8} << 20;

/// What a rank writes checkpoints through, and reads them: so many threads, each with a buffer of so many
/// bytes and a page of the disk on either side.
inline constexpr int checkpoint_lanes = 4;
inline constexpr std::int64_t checkpoint_part = std::int64_t{4} << 20;
inline constexpr std::int64_t disk_page = 4096;
constexpr std::int64_t checkpoint_buffers(int lanes, std::int64_t part) {
  return lanes * (part + 2 * disk_page);
}
/// Bytes of the host's memory that each rank has room for.
inline constexpr std::int64_t checkpoint_room = checkpoint_buffers(checkpoint_lanes, checkpoint_part);

/// Bytes each rank sends: N ranks, `bytes` per slot (the shard).
constexpr std::int64_t all_gather_sent(int ranks, std::int64_t bytes) {
  return (ranks - 1) * bytes;
}
/// Where the contribution of a peer lies after an exchange: those of the others are in rank order, without a
/// gap for our own.
constexpr int exchange_slot(int peer, int rank) {
  return peer < rank ? peer : peer - 1;
}
/// Bytes of a partial sum that one node sends to another; count: elements.
constexpr std::int64_t partial_sum_bytes(std::int64_t count) {
  return count * size_of(DType::f32);
}
/// Bytes of partial sums that each rank sends to other nodes, in a sum that takes two steps.
constexpr std::int64_t partial_sums_out_of_node(SumGroup group, std::int64_t count) {
  return (group.nodes() - 1) * partial_sum_bytes(count);
}
/// count: elements per slot, of type `in`.
constexpr std::int64_t reduce_scatter_sent(SumGroup group, DType in, std::int64_t count) {
  if (!group.by_node(in)) return (group.ranks - 1) * count * size_of(in);
  return (group.on_node - 1) * group.nodes() * count * size_of(in) + partial_sums_out_of_node(group, count);
}
/// Bytes of workspace. In one step it holds the slots of all other members. In two steps it holds this node's
/// partial sum for each node, then the contributions of the node's other members. Other nodes' partial sums
/// later overwrite these contributions, and need at most as many bytes.
constexpr std::int64_t reduce_scatter_workspace(SumGroup group, DType in, std::int64_t count) {
  if (!group.by_node(in)) return (group.ranks - 1) * count * size_of(in);
  return group.nodes() * (partial_sum_bytes(count) + (group.on_node - 1) * count * size_of(in));
}
/// An all-reduce cuts count elements into slices of ceil(count / ranks); the last ones may be short or empty.
constexpr std::int64_t all_reduce_slice(int ranks, std::int64_t count) {
  return (count + ranks - 1) / ranks;
}
constexpr std::int64_t slice_length(int ranks, std::int64_t count, int index) {
  const std::int64_t slice = all_reduce_slice(ranks, count), left = count - index * slice;
  return left < 0 ? 0 : left < slice ? left : slice;
}
constexpr std::int64_t all_reduce_sent(SumGroup group, int index, DType type, std::int64_t count) {
  const int ranks = group.ranks;
  const std::int64_t own = slice_length(ranks, count, index), gather = (ranks - 1) * own * size_of(type);
  if (!group.by_node(type)) return (count - own) * size_of(type) + gather;
  std::int64_t kept = 0;  // elements of the slices that this rank adds up for its node
  for (int node = 0; node < group.nodes(); ++node)
    kept += slice_length(ranks, count, node * group.on_node + index % group.on_node);
  return (count - kept) * size_of(type) + partial_sum_bytes(kept - own) + gather;
}
constexpr std::int64_t all_reduce_workspace(SumGroup group, DType type, std::int64_t count) {
  return reduce_scatter_workspace(group, type, all_reduce_slice(group.ranks, count));
}
// What collectives that the host drives take of pinned host memory, where MPI cannot reach the device's
// (runtime/comm/staged_comm.hpp): each part starts on a multiple of staged_alignment.
inline constexpr std::int64_t staged_alignment = 64;
constexpr std::int64_t staged_part(std::int64_t bytes) {
  return round_up(bytes, staged_alignment);
}
constexpr std::int64_t all_gather_staging(int ranks, std::int64_t bytes) {
  return staged_part(ranks * bytes);
}
constexpr std::int64_t reduce_scatter_staging(SumGroup group, DType in, DType out, std::int64_t count) {
  return staged_part(group.ranks * count * size_of(in)) + staged_part(count * size_of(out)) +
         staged_part(reduce_scatter_workspace(group, in, count));
}
constexpr std::int64_t all_reduce_staging(SumGroup group, DType type, std::int64_t count) {
  return staged_part(count * size_of(type)) + staged_part(all_reduce_workspace(group, type, count));
}
/// The root sends the whole message to each other member.
constexpr std::int64_t broadcast_sent(int ranks, int index, int root, std::int64_t bytes) {
  return index == root ? (ranks - 1) * bytes : 0;
}
/// Every member sends what it has to one other.
constexpr std::int64_t shift_sent(int ranks, std::int64_t bytes) {
  return ranks > 1 ? bytes : 0;
}
/// bytes: of one slot; a rank's own slot is copied.
constexpr std::int64_t all_to_all_sent(int ranks, std::int64_t bytes) {
  return (ranks - 1) * bytes;
}

}  // namespace ztrain
