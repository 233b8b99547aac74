#pragma once
// Low-rank adapters as a pass over a family's graph: beside y = x W^T of a chosen linear layer, or of each of
// a layer's experts, y + scale (dropout(x) A^T) B^T with config::adapter_scale (Hu et al., "LoRA: Low-Rank
// Adaptation of Large Language Models", 2021). A [rank, k] is drawn uniformly in +-1/sqrt(k), B [n, rank] is
// zero, so a model starts as it was. config/adapters.hpp says how the factors are named.
//
// With lora.dora each output of such a layer has a magnitude (kernels/dora/record.hpp), which starts as the
// norm of its row of W: y = m / norm * (x' W^T + scale (x' A^T) B^T) + (x - x') W^T + bias, where x' =
// dropout(x).

#include <cstdint>

#include "config/deck.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

/// Adds the adapters of lora.targets; nothing for rank 0. seed: of the dropout masks. Throws Error naming a
/// target that is no layer of the model, with the names of some that are, and one that gives experts adapters
/// with dropout.
void add_adapters(Graph& graph, const config::Lora& lora, std::uint64_t seed);

/// Returns the layer to which a node's weight belongs. With magnitudes and dropout a layer has two products.
std::string layer_of(const Node& product);

}  // namespace ztrain::model
