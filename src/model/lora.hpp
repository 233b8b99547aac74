#pragma once
// Low-rank adapters as a pass over a family's graph: beside y = x W^T of a chosen linear layer,
// y + alpha / rank (dropout(x) A^T) B^T (Hu et al., "LoRA: low-rank adaptation of large language models",
// 2021). A [rank, k] is drawn uniformly in +-1/sqrt(k), B [n, rank] is zero, so a model starts as it was.
// Names are those of the PEFT library without its prefix: "model.layers.0.self_attn.q_proj.lora_A.weight".

#include <cstdint>
#include <string>

#include "config/deck.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

inline constexpr const char* lora_a_suffix = ".lora_A.weight";
inline constexpr const char* lora_b_suffix = ".lora_B.weight";

/// Returns whether an entry of lora.targets means a module: its last part, as in PEFT, or with a dot a
/// pattern of its whole name.
bool is_target(const std::string& target, const std::string& module);

/// Adds the adapters of lora.targets; nothing for rank 0. seed: of the dropout masks. Throws Error naming a
/// target that is no linear layer of the model, with the names of some that are.
void add_adapters(Graph& graph, const config::Lora& lora, std::uint64_t seed);

}  // namespace ztrain::model
