#pragma once
// Weights that are codes, over mesh.tensor: which degrees leave whole what shares a scale or a product.

#include "config/deck.hpp"

namespace ztrain::plan {

/// Throws Error with the legal degrees if mesh.tensor is none for precision.fp8 or lora.quantization.
void require_parts_of_codes(const config::Deck& deck);

}  // namespace ztrain::plan
