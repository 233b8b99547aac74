#pragma once
// The shape of an op `attention` or `attention_grad`, from q [tokens, heads * head_dim] and its attributes.

#include "base/attention_shape.hpp"
#include "base/attributes.hpp"
#include "base/shape.hpp"

namespace ztrain::program {

AttentionShape attention_shape(const Shape& q, const Attributes& attributes);

}  // namespace ztrain::program
