#pragma once
// Arranges the nodes of a job in a ring: the next node holds what a node has once more. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ztrain::checkpoint {

/// Bytes [begin, end) of a file.
struct FilePart {
  std::int64_t begin = 0, end = 0;
};
/// Returns part `number` of `parts` that together are the whole file; each is as long as any other or a byte
/// longer.
FilePart file_part(std::int64_t bytes, std::int64_t number, std::int64_t parts);

/// A rank's part of the file that one node gives to the next.
struct Lane : FilePart {
  int rank = 0;  ///< rank that it sends to, or receives from
};

class NodeRing {
 public:
  /// node_of says, by rank, where the ranks really are; nodes are numbered from 0, and each has a rank.
  explicit NodeRing(std::vector<int> node_of);

  const std::vector<int>& node_of() const { return node_of_; }
  int nodes() const { return static_cast<int>(ranks_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& ranks_of(int node) const { return ranks_[static_cast<std::size_t>(node)]; }
  /// Returns whether the rank makes the node's folder.
  bool is_first(int rank) const { return ranks_of(node_of(rank)).front() == rank; }
  int next(int node) const { return (node + 1) % nodes(); }
  int before(int node) const { return (node + nodes() - 1) % nodes(); }

  /// Bytes on a node: those that its own ranks save, and those of the previous node's ranks, which are none
  /// if there is no other node.
  struct Held {
    std::int64_t own = 0, before = 0;
  };
  /// saved is the bytes that each rank saves, by rank.
  Held held(int node, std::span<const std::int64_t> saved) const;

  /// Returns what this rank sends of its node's file of this size to a rank of the next node; nothing if it
  /// has no partner there, or if there is no other node.
  std::optional<Lane> sends(int rank, std::int64_t bytes) const;
  /// Returns what it receives of the previous node's file.
  std::optional<Lane> receives(int rank, std::int64_t bytes) const;
  /// Returns the bytes of the longest lane of such a file.
  std::int64_t longest_lane(int from_node, std::int64_t bytes) const;

 private:
  int lanes(int from_node) const;
  std::optional<Lane> lane(int from_node, int number, int rank, std::int64_t bytes) const;
  int place_on_node(int rank) const;

  std::vector<int> node_of_;
  std::vector<std::vector<int>> ranks_;  ///< ranks, by node
};

}  // namespace ztrain::checkpoint
