#pragma once
// Makes the newest snapshot in the memory of nodes that is complete and sound a checkpoint like any other,
// from which any mesh goes on.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/neighbours/node_ring.hpp"

namespace ztrain::checkpoint {

/// Places that this rank uses.
struct SnapshotPlaces {
  std::filesystem::path on_node;      ///< node_folder() of its node, which need not exist
  std::filesystem::path checkpoints;  ///< folder that all ranks see
  std::string host;                   ///< for messages
};

struct PublishedSnapshot {
  std::int64_t step = -1;                ///< -1: there was none
  std::vector<std::string> passed_over;  ///< newer snapshots: the step and what is wrong with each
};

/// Collective; returns the same on every rank. Takes the newest snapshot beyond step `newest` all of whose
/// files have their checksums on some node. The ranks of the nodes that hold them copy the files to
/// checkpoints/step_N, which gets its name once it is complete. Throws AgreedError if it cannot be written.
PublishedSnapshot publish_newest_snapshot(const NodeRing& ring, const SnapshotPlaces& places,
                                          std::int64_t newest);

}  // namespace ztrain::checkpoint
