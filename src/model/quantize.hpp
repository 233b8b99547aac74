#pragma once
// Frozen weights in 4 or 8 bits, as a pass over a family's graph: y = x W^T of a block's linear layer whose
// weight is not trained reads the weight's codes. They are made where the weight is kept, while it is read
// (job/codes/quantized_weights.hpp).

#include "config/deck.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

/// Leaves the graph alone unless lora.quantization asks for codes. The layers are those that bitsandbytes
/// quantises: every linear layer of the blocks. Left as they are: the embedding, norms, biases, routers, the
/// head, adapters, and what model.trainable names. Throws Error for experts, and if no layer is left.
void quantize_weights(Graph& graph, const config::Lora& lora);

}  // namespace ztrain::model
