#pragma once
// The shape of an op `attention` or `attention_grad`, from its first input and its attributes. That input is
// q [tokens, heads * head_dim], or q, k and v side by side [tokens, (heads + 2 kv_heads) * head_dim].

#include "base/attributes.hpp"
#include "base/shape.hpp"
#include "kernel_interface/attention_shape.hpp"

namespace ztrain::program {

/// Whether q, k and v are columns of input 0, and their gradients of output 0.
bool holds_all(const Attributes& attributes);

AttentionShape attention_shape(const Shape& q, const Attributes& attributes);

}  // namespace ztrain::program
