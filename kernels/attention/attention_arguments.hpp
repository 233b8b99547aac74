#pragma once
// What the attention kernels are handed, small enough for a launch on a GPU.

#include <cstdint>

#include "kernels/attention/attention_part.hpp"

namespace ztrain::kernels {

/// What forward and backward read; operands as AttentionInput says.
template <class T>
struct AttentionArguments {
  AttentionShape shape;
  acc_t<T> scale;
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* document_start;
};

template <class T>
AttentionArguments<T> arguments_of(const AttentionInput<T>& input) {
  return {input.shape,  static_cast<acc_t<T>>(input.scale), input.q.data, input.k.data,
          input.v.data, input.document_start.data};
}

/// As well for backward.
template <class T>
struct AttentionGradientArguments : AttentionArguments<T> {
  const T* o;
  const acc_t<T>* lse;
  const T* dout;
  acc_t<T>* delta;  ///< [tokens, heads]: sum over the head of dout * o
};

}  // namespace ztrain::kernels
