#pragma once
// Checks several keys together, computes ranks and batches, and says which keys may differ on resume.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Checks a deck once every key is set, and resolves model.head_dim and model.num_key_value_heads. Throws
/// Error naming the keys, where they were given, and what would be legal.
void validate(Deck& deck);

/// Resolves the mesh for a job of this many ranks. A degree of -1 becomes what is left. HYBRID_SHARD takes
/// shard = ranks per node if the deck sets neither shard nor replicate. Afterwards all degrees are positive,
/// stored in deck.mesh, and their product is ranks. ranks_per_node is as launched; cluster.ranks_per_node
/// replaces it if the deck itself gives it (a preset's does not), and deck.mesh.per_node is the result.
/// Throws Error with the equation if mesh or batch do not fit, if sharding.reshard_after_forward does not
/// divide mesh.shard, or if an axis is not trained over yet.
void validate_for_ranks(Deck& deck, int ranks, int ranks_per_node);

/// Returns the number of ranks that see different parts of the batch. Call it after validate_for_ranks.
std::int64_t data_parallel_degree(const Deck& deck);
/// Returns the micro-batches per rank and optimizer step. Call it after validate_for_ranks.
std::int64_t accumulation_steps(const Deck& deck);
/// Returns the tokens per optimizer step, over all ranks.
std::int64_t tokens_per_step(const Deck& deck);
/// Returns the optimizer steps of the run. sequences_per_epoch counts training sequences in the data. Throws
/// Error if the schedule's warmup and decay do not fit into the steps.
std::int64_t total_steps(const Deck& deck, std::int64_t sequences_per_epoch);

/// Returns sharding.reshard_after_forward with its auto resolved: whether the gathered copy is dropped after
/// forward.
bool reshard_after_forward(const Deck& deck);
/// Returns N of sharding.reshard_after_forward = N, the ranks over which a copy stays sharded; 0: none is
/// kept that way.
std::int64_t reshard_group(const Deck& deck);
/// Returns precision.rounding with its auto resolved.
bool stochastic_rounding(const Deck& deck);

/// Returns checkpoint.folder, or <run.output>/checkpoints, as a whole path, since a deck in any folder may
/// use a printed path.
std::string checkpoint_folder(const Deck& deck);
/// Returns whether checkpoints before the end of the run are written from a copy of its state.
bool saves_behind_training(const Deck& deck);
/// Returns whether the run keeps room for such a copy, for checkpoints or for snapshots in the nodes' memory.
bool copies_state(const Deck& deck);

/// Returns the source of a key's value: "default", "input.toml:12", "command line", ...
std::string source_of(const Deck& deck, std::string_view key);

/// Returns whether the key was given in the file or on the command line.
bool is_explicit(const Deck& deck, std::string_view key);

/// Returns one message for each key that changed and may not change on resume. saved_resolved_toml is the
/// resolved deck of the checkpoint; keys that it lacks, and keys that no longer exist, are passed over.
/// Patterns of data files are compared without their folders: data may move, and their content has its own
/// identity. Throws Error, with `where`, if the saved text is not a deck.
std::vector<std::string> changes_forbidden_on_resume(const Deck& now, const std::string& saved_resolved_toml,
                                                     const std::string& where = "the checkpoint's deck");

}  // namespace ztrain::config
