#pragma once
// The shape of an op `attention` or `attention_grad`, from its first input and its constants. That input is
// q [tokens, heads * head_dim], or q, k and v side by side [tokens, (heads + 2 kv_heads) * head_dim].

#include "base/shape.hpp"
#include "kernel_interface/attention_shape.hpp"
#include "kernels/attention/record.hpp"

namespace ztrain::program {

AttentionShape attention_shape(const Shape& q, const Attention& attention);

}  // namespace ztrain::program
