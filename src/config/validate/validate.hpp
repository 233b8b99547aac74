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

/// Progress of a run when its batch or its data last changed (checkpoint.override). Until then steps,
/// sequences and tokens are no multiples of each other. All are 0 in a run in which nothing changed.
struct Earlier {
  std::int64_t steps = 0, samples = 0, tokens = 0;
  double epochs = 0;  ///< passes over the data, as run.epochs counts them
};

/// Returns the optimizer steps of the run. sequences_per_epoch counts training sequences in the data. Throws
/// Error if the schedule's warmup and decay do not fit into the steps.
std::int64_t total_steps(const Deck& deck, std::int64_t sequences_per_epoch, const Earlier& earlier = {});
/// Returns the tokens that a run has consumed with its first `samples` sequences.
std::int64_t tokens_of(const Deck& deck, std::int64_t samples, const Earlier& earlier);
/// Returns the passes over the data that a run has made with its first `samples` sequences.
double epochs_of(std::int64_t samples, std::int64_t sequences_per_epoch, const Earlier& earlier);

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
/// Returns whether checkpoints hold the weights that are not trained: if the deck wants that, and if these
/// weights can neither be read again from model.from nor be drawn again for adapters.
bool saves_frozen(const Deck& deck);

/// Returns the source of a key's value: "default", "input.toml:12", "command line", ...
std::string source_of(const Deck& deck, std::string_view key);

/// Returns whether the key was given in the file or on the command line.
bool is_explicit(const Deck& deck, std::string_view key);

/// A key whose value differs from the checkpoint's, both as TOML.
struct KeyChange {
  std::string key, before, now;
  std::string refusal;     ///< message that says why it may not change; "" if it may
  bool can_change = true;  ///< Whether checkpoint.override could permit it.
};

/// How a deck differs from that of a checkpoint.
struct DeckChanges {
  Deck before;  ///< the deck of now with the checkpoint's values; folders of data.train are left out
  std::vector<KeyChange> keys;
  bool has(std::string_view pattern) const;  ///< Whether a key that the pattern matches has changed.
};

/// Returns the keys that changed, without those that are always free unless checkpoint.override names them.
/// saved_resolved_toml is the resolved deck of the checkpoint; keys that it lacks, and keys that no longer
/// exist, are passed over. Patterns of data files are compared without their folders: data may move, and
/// their content has its own identity. Throws Error, with `where`, if the saved text is not a deck.
DeckChanges changes_on_resume(const Deck& now, const std::string& saved_resolved_toml,
                              const std::string& where = "the checkpoint's deck");

/// Returns one message for each of them that may not change.
std::vector<std::string> forbidden(const DeckChanges& changes);

/// Returns the entries of checkpoint.override that would permit the changes, as TOML; "" if none can.
std::string override_for(const DeckChanges& changes);

/// Returns whether checkpoint.override names the key.
bool is_listed(const Deck& deck, std::string_view key);

}  // namespace ztrain::config
