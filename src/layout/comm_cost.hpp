#pragma once
// Bytes that our collectives send and the workspace they need, and what checkpoints go through, as pure
// arithmetic: the plan agrees with who communicates and writes, because all call this.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/shape.hpp"

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
/// count: elements per slot, of type `in`.
constexpr std::int64_t reduce_scatter_sent(int ranks, DType in, std::int64_t count) {
  return (ranks - 1) * count * size_of(in);
}
/// Where the contribution of a peer lies after an exchange: those of the others are in rank order, without a
/// gap for our own.
constexpr int exchange_slot(int peer, int rank) {
  return peer < rank ? peer : peer - 1;
}
/// Pairwise exchange receives every other member's slot before it sums them in rank order.
constexpr std::int64_t reduce_scatter_workspace(int ranks, DType in, std::int64_t count) {
  return (ranks - 1) * count * size_of(in);
}
/// An all-reduce cuts count elements into slices of ceil(count / ranks); the last ones may be short or empty.
constexpr std::int64_t all_reduce_slice(int ranks, std::int64_t count) {
  return (count + ranks - 1) / ranks;
}
constexpr std::int64_t slice_length(int ranks, std::int64_t count, int index) {
  const std::int64_t slice = all_reduce_slice(ranks, count), left = count - index * slice;
  return left < 0 ? 0 : left < slice ? left : slice;
}
constexpr std::int64_t all_reduce_sent(int ranks, int index, DType type, std::int64_t count) {
  const std::int64_t own = slice_length(ranks, count, index);
  return (count - own + (ranks - 1) * own) * size_of(type);
}
constexpr std::int64_t all_reduce_workspace(int ranks, DType type, std::int64_t count) {
  return (ranks - 1) * all_reduce_slice(ranks, count) * size_of(type);
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
constexpr std::int64_t reduce_scatter_staging(int ranks, DType in, DType out, std::int64_t count) {
  return staged_part(ranks * count * size_of(in)) + staged_part(count * size_of(out)) +
         staged_part(reduce_scatter_workspace(ranks, in, count));
}
constexpr std::int64_t all_reduce_staging(int ranks, DType type, std::int64_t count) {
  return staged_part(count * size_of(type)) + staged_part(all_reduce_workspace(ranks, type, count));
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
