#pragma once
// Bytes of the workspaces that kernels are passed. Pure functions of shapes, so that the memory plan and the
// run agree.

#include <algorithm>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/shape.hpp"

namespace ztrain {

/// A matrix product's library scratchpad, for C[m, n] of type `out` summed over k: a fixed reservation.
/// Algorithms that need more are not chosen. oneDNN 2.6 asks for at most 1.7 MiB whatever the shape, but sums
/// 16-bit products over an odd k in fp32 beside C.
inline constexpr std::int64_t gemm_base_workspace_bytes = std::int64_t{2} << 20;
constexpr std::int64_t gemm_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k, DType out) {
  return gemm_base_workspace_bytes + (k % 2 == 1 && size_of(out) == 2 ? round_up(m * n * 4, 4096) : 0);
}

/// Bytes of one element of the type in which elements of `type` are summed.
constexpr std::int64_t accumulator_bytes(DType type) {
  return type == DType::f64 ? 8 : 4;
}

/// attention_backward: one sum per (token, head), and for 16-bit types the fp32 gradient of the queries.
constexpr std::int64_t attention_backward_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                                          std::int64_t head_dim, DType type) {
  const std::int64_t delta = tokens * heads * accumulator_bytes(type);
  return size_of(type) < 4 ? delta + tokens * heads * head_dim * 4 : delta;
}

/// Leading dimension of the head's logits: rows start on cache lines.
constexpr std::int64_t head_loss_stride(std::int64_t vocabulary) {
  return round_up(vocabulary, 32);
}

/// Bytes of one token's logits and, where they need room of their own, logit gradients in `type`.
constexpr std::int64_t head_loss_token_bytes(std::int64_t vocabulary, DType type) {
  const std::int64_t gradient = size_of(type) < 4 ? size_of(type) : 0;
  return head_loss_stride(vocabulary) * (accumulator_bytes(type) + gradient) + 8;
}

/// Tokens whose logits exist at once: as many as fit 32 MiB, in multiples of 16, at least 32, at most
/// `tokens`.
constexpr std::int64_t head_loss_chunk(std::int64_t tokens, std::int64_t vocabulary, DType type) {
  const std::int64_t fit = (std::int64_t{32} << 20) / head_loss_token_bytes(vocabulary, type) / 16 * 16;
  return std::min(tokens, std::max<std::int64_t>(32, fit));
}

/// What the products of head_loss and head_loss_grad need: the gradient of the input is summed over the
/// vocabulary, that of the weight, of type `gradient`, over the tokens of a chunk (of which one is odd if
/// `tokens` is).
constexpr std::int64_t head_loss_gemm_bytes(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width,
                                            DType type, DType gradient) {
  return std::max(gemm_workspace_bytes(head_loss_chunk(tokens, vocabulary, type), width, vocabulary, type),
                  gemm_workspace_bytes(vocabulary, width, tokens, gradient));
}

/// head_loss_grad; head_loss with gradient = fp32.
constexpr std::int64_t head_loss_workspace_bytes(std::int64_t tokens, std::int64_t vocabulary,
                                                 std::int64_t width, DType type, DType gradient) {
  return head_loss_gemm_bytes(tokens, vocabulary, width, type, gradient) +
         head_loss_chunk(tokens, vocabulary, type) * head_loss_token_bytes(vocabulary, type);
}

// Light kernels.

/// Rows that one block of the rmsnorm backward sums into one partial gradient of the weight: at most 64
/// blocks.
constexpr std::int64_t rmsnorm_rows_per_block(std::int64_t rows) {
  return std::max<std::int64_t>(32, ceil_div(rows, 64));
}

/// rmsnorm_backward on x [rows, cols] of T: one partial weight gradient in acc_t<T> per block of rows.
constexpr std::int64_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t cols, DType type) {
  const std::int64_t height = rmsnorm_rows_per_block(rows);
  return ceil_div(rows, height) * cols * accumulator_bytes(type);
}

/// sum_squares adds quanta of this many elements, in passes of at most sum_squares_pass_quanta.
inline constexpr std::int64_t sum_squares_quantum = 256;
inline constexpr std::int64_t sum_squares_pass_quanta = 65536;

/// sum_squares on count elements of any type: one double per quantum of a pass.
constexpr std::int64_t sum_squares_workspace_bytes(std::int64_t count) {
  const std::int64_t quanta = ceil_div(count, sum_squares_quantum);
  return 8 * std::min(quanta, sum_squares_pass_quanta);
}

}  // namespace ztrain
