#pragma once
// Checks that look at several keys, and the arithmetic of ranks and batches.

#include <cstdint>
#include <string>
#include <string_view>

#include "config/deck.hpp"

namespace ztrain::config {

/// What load_deck checks once every key is in place; also resolves model.head_dim and
/// model.num_key_value_heads. Throws Error naming the keys, where they were given, and what would be legal.
void validate(Deck& deck);

/// Resolves the mesh for a job of this many ranks: a degree of -1 becomes what is left, and HYBRID_SHARD in a
/// deck that is silent about shard and replicate takes shard = ranks per node. Afterwards all degrees are
/// positive, stored in deck.mesh, and their product is ranks. ranks_per_node is as launched;
/// cluster.ranks_per_node wins over it where the deck gives it (a preset's does not), and deck.mesh.per_node
/// is what results. Throws Error with the equation where mesh or batch do not fit, where
/// sharding.reshard_after_forward does not divide mesh.shard, or where an axis is not trained over yet.
void validate_for_ranks(Deck& deck, int ranks, int ranks_per_node);

/// Ranks that see different parts of the batch. After validate_for_ranks.
std::int64_t data_parallel_degree(const Deck& deck);
/// Micro-batches per rank and optimizer step. After validate_for_ranks.
std::int64_t accumulation_steps(const Deck& deck);
/// Tokens per optimizer step, over all ranks.
std::int64_t tokens_per_step(const Deck& deck);
/// Optimizer steps of the run; sequences_per_epoch: training sequences in the data. Throws Error when the
/// schedule's warmup and decay do not fit into them.
std::int64_t total_steps(const Deck& deck, std::int64_t sequences_per_epoch);

/// sharding.reshard_after_forward with its auto resolved: is the gathered copy dropped after forward?
bool reshard_after_forward(const Deck& deck);
/// N of sharding.reshard_after_forward = N, the ranks over which a copy stays sharded; 0: none is kept that
/// way.
std::int64_t reshard_group(const Deck& deck);
/// precision.rounding with its auto resolved.
bool stochastic_rounding(const Deck& deck);

/// checkpoint.folder, or <run.output>/checkpoints; a whole path, since a deck in any folder may name what a
/// run prints of it.
std::string checkpoint_folder(const Deck& deck);
/// Whether checkpoints before the end of the run are written of a copy of its state.
bool saves_behind_training(const Deck& deck);
/// Whether the run keeps room for such a copy, for checkpoints or for snapshots in the nodes' memory.
bool copies_state(const Deck& deck);

/// Where a key's value came from: "default", "input.toml:12", "command line", ...
std::string source_of(const Deck& deck, std::string_view key);

/// Was the key given in the file or on the command line?
bool is_explicit(const Deck& deck, std::string_view key);

}  // namespace ztrain::config
