#pragma once
// How a run comes back to a snapshot in the memory of nodes: the newest that is whole and sound over those
// that are there becomes a checkpoint like any other, from which any mesh goes on.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/neighbours/node_ring.hpp"

namespace ztrain::checkpoint {

/// Where things are, for this rank.
struct SnapshotPlaces {
  std::filesystem::path on_node;      ///< node_folder() of its node, which need not be there
  std::filesystem::path checkpoints;  ///< that all ranks see
  std::string host;                   ///< for messages
};

struct PublishedSnapshot {
  std::int64_t step = -1;                ///< -1: there was none
  std::vector<std::string> passed_over;  ///< of newer ones: the step and what is wrong with it
};

/// Collective, the same on every rank: the newest snapshot beyond step `newest` all of whose files have their
/// checksums on some node is copied to checkpoints/step_N by the ranks of the nodes that hold them, and gets
/// that name once it is complete. Throws AgreedError where that cannot be written.
PublishedSnapshot publish_newest_snapshot(const NodeRing& ring, const SnapshotPlaces& places,
                                          std::int64_t newest);

}  // namespace ztrain::checkpoint
