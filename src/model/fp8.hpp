#pragma once
// Products with 8-bit floats, as a pass over a family's graph: y = x W^T of a block's linear layer becomes a
// quantisation of x, which all layers that read x share, and a product of codes. The weight itself is a
// parameter of type e4m3 from here on: its codes are made where it is kept (program/passes/weight_codes.hpp)
// and gathered as bytes.

#include <cstdint>
#include <string>

#include "model/graph.hpp"

namespace ztrain::model {

/// What sizes and tokens are multiples of, as the products on GPUs ask.
inline constexpr std::int64_t fp8_multiple = 16;

/// scaling: "none" leaves the graph alone; "tensorwise" and "rowwise" are one scale per operand or per row of
/// it. Left as they are: the head, adapters, weights that several ops read, and layers whose sizes are not
/// multiples of 16, which the products on GPUs ask for. Tokens are a multiple of 16. Throws Error where no
/// layer is left.
void use_fp8(Graph& graph, const std::string& scaling);

}  // namespace ztrain::model
