#pragma once
// Prints the field table as a template to start from and as the reference. Prints the resolved deck, and
// describes its choices in a line each, as banners and plans show them.

#include <cstdint>
#include <string>

#include "config/deck.hpp"

namespace ztrain::config {

/// Returns a commented deck with every key, its default, unit, legal values and documentation. It loads as it
/// is: keys that must be given have an example; the others are commented out as `#key = default`.
std::string deck_template();

/// Returns docs/inputs.md.
std::string inputs_markdown();

/// Returns every key with its value and, as a comment, the value's source. A key without effect is commented
/// out. It loads to the same deck.
std::string resolved_toml(const Deck& deck);

/// Returns the identity of what shapes the computed numbers: model, data settings, batch, mesh, precision,
/// optimizer, schedule, seed and length. Output, checkpoints, strategy, recomputation and file names are not
/// part of it. Call it after validate_for_ranks, which resolves the mesh.
std::uint64_t deck_hash(const Deck& deck);

/// Returns "FULL_SHARD, gradients auto, reshard auto, prefetch 1 and pre, units by block, recompute none",
/// and what else differs from its default.
std::string strategy_summary(const Deck& deck);

/// Returns "bigbird, 21 of 36 blocks of 64 tokens", the blocks up to each query's own; "" without
/// [sparse_attention].
std::string attention_summary(const Deck& deck);

/// Returns "parameters bf16, gradients fp32, ..."; with fp16 also the loss scale.
std::string precision_summary(const Deck& deck);

/// Returns "adamw, lr 0.0003 (cosine), weight decay 0.1, clip 1", and what else differs from its default.
std::string optimizer_summary(const Deck& deck);

/// Returns "847 GB each, every 250 steps and at the end; room for 4 (checkpoint.keep = 3)". bytes is the size
/// of one checkpoint, of all ranks.
std::string saving_summary(const Deck& deck, double bytes);

/// Returns "master, optimizer -> cpu; activations -> nvme (0.5 of them)", with "; steps ahead of the norm"
/// if the host takes them; "" without offload.
std::string offload_summary(const Deck& deck);

/// Returns "without effect on CPUs: device.tf32 = true (deck.toml:9)" for keys that the deck gives other
/// values than their defaults and that act on another kind of device alone; "" if there are none. `device` is
/// "CPU" or "GPU".
std::string device_note(const Deck& deck, std::string_view device);

/// Returns a note if data.sequence is above what the model of model.from was made for, else "".
std::string context_note(const Deck& deck);

/// Returns a note if the model of model.from has a head of its own although its config.json ties it, else "".
std::string head_note(const Deck& deck);

/// Returns "20.97M of 8.03B parameters (0.26%), adapters of rank 16 (alpha 32) on q_proj, v_proj"; "" if all
/// are trained.
std::string trained_summary(const Deck& deck, std::int64_t trained, std::int64_t parameters);

}  // namespace ztrain::config
