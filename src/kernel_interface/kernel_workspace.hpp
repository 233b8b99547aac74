#pragma once
// Bytes of the workspaces that kernels are passed. Pure functions of shapes and of what the kernels run on,
// so that the memory plan and the run agree.

#include <algorithm>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "kernel_interface/target.hpp"

namespace ztrain {

/// A matrix product's library scratchpad: a fixed reservation. Algorithms that need more are not chosen.
/// oneDNN 2.6 asks for at most 1.7 MiB whatever the shape, but see below. cuBLASLt's documentation
/// recommends 32 MiB on Hopper.
inline constexpr std::int64_t gemm_base_workspace_bytes = std::int64_t{2} << 20;
inline constexpr std::int64_t gemm_cuda_workspace_bytes = std::int64_t{32} << 20;

/// On CPUs, products of 16-bit matrices may be formed in fp32 (kernels/gemm/gemm_ways.hpp), from panels of A
/// of at most rows x depth elements and panels of B of at most depth x cols: each element of A is widened
/// once for 1024 multiplications, each of B for 512 or more. A panel of A fits the second cache beside what
/// the product itself copies; of the sizes between 256 and 2048 these lost the least.
inline constexpr std::int64_t gemm_panel_rows = 512, gemm_panel_cols = 1024, gemm_panel_depth = 1024;
/// Elements between the rows of a panel, so that rows a power of two long do not alias in the caches.
inline constexpr std::int64_t gemm_panel_gap = 16;

/// Where the fp32 panels lie in the workspace, behind the library's part: offsets in bytes.
struct GemmHalfPlaces {
  std::int64_t a, b, bias;
  std::int64_t c;    ///< only for 16-bit results; fp32 ones are summed where they belong
  std::int64_t end;  ///< bytes of the whole workspace
};
constexpr GemmHalfPlaces gemm_half_places(std::int64_t m, std::int64_t n, std::int64_t k, DType out) {
  const std::int64_t rows = std::min(m, gemm_panel_rows), cols = std::min(n, gemm_panel_cols),
                     depth = std::min(k, gemm_panel_depth);
  const auto bytes = [](std::int64_t count) { return round_up(4 * count, 64); };
  // Either dim may be that of the panel's rows.
  const auto panel = [&](std::int64_t x, std::int64_t y) {
    return bytes(x * y + gemm_panel_gap * std::max(x, y));
  };
  GemmHalfPlaces p{};
  p.a = gemm_base_workspace_bytes;
  p.b = p.a + panel(rows, depth);
  p.bias = p.b + panel(depth, cols);
  p.c = p.bias + bytes(cols);
  p.end = p.c + (size_of(out) == 2 ? bytes(rows * cols) : 0);
  return p;
}

/// For C[m, n] of type `out` summed over k products of type `in`. A plan for CPUs does not know which
/// instructions they have, so that 16-bit products have room for any way of forming them: oneDNN's own, which
/// sums bf16 products over an odd k in fp32 beside a bf16 C, that of fp32 panels, and AMX's, which takes what
/// these need.
constexpr std::int64_t gemm_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k, DType in,
                                            DType out, Target target) {
  if (target == Target::cuda) return gemm_cuda_workspace_bytes;
  if (size_of(in) != 2) return gemm_base_workspace_bytes;
  const std::int64_t sums = k % 2 == 1 && out == DType::bf16 ? round_up(m * n * 4, 4096) : 0;
  return std::max(gemm_base_workspace_bytes + sums, gemm_half_places(m, n, k, out).end);
}

/// On CPUs, for a product whose sizes are known only when it runs, and are at most these: C is formed in
/// panels wherever its sums need room of their own.
constexpr std::int64_t gemm_ragged_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k, DType in,
                                                   DType out) {
  return size_of(in) == 2 ? gemm_half_places(m, n, k, out).end : gemm_base_workspace_bytes;
}

/// A product of groups of rows, C[m, n] summed over k: m or k is that of all rows. GPUs need none.
constexpr std::int64_t grouped_workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k, DType in,
                                               DType out, Target target) {
  return target == Target::cuda ? 0 : gemm_ragged_workspace_bytes(m, n, k, in, out);
}

/// Products of 8-bit matrices need k and n, and with them the row strides, to be multiples of this.
inline constexpr std::int64_t gemm_fp8_multiple = 16;

/// For a product of 8-bit matrices: the library's on GPUs; the loop of CPUs needs none, but a reservation is
/// never empty.
constexpr std::int64_t gemm_fp8_workspace_bytes(Target target) {
  return target == Target::cuda ? gemm_cuda_workspace_bytes : 64;
}

/// Doubles that a rank tells the others of a token, where the vocabulary is split.
inline constexpr std::int64_t logit_sums_width = 3;
/// Terms of a distilled token: its loss, its cross-entropy and its divergence, each times its weight.
inline constexpr std::int64_t distilled_terms = 3;

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

/// attention_part_backward: one sum per (token, head).
constexpr std::int64_t attention_part_workspace_bytes(std::int64_t tokens, std::int64_t heads, DType type) {
  return tokens * heads * accumulator_bytes(type);
}

/// Tokens whose terms of the gradient of a sink are summed at once.
inline constexpr std::int64_t sink_tokens = 64;
/// sinks_backward: a sum in fp64 for each block of tokens and head.
constexpr std::int64_t sinks_backward_workspace_bytes(std::int64_t tokens, std::int64_t heads) {
  return round_up(ceil_div(tokens, sink_tokens) * heads * static_cast<std::int64_t>(sizeof(double)), 64);
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

/// Tokens whose logits exist at once: as many as fit 32 MiB, in multiples of 16, at least 256 (each chunk
/// reads the whole weight, and reads and writes its gradient: with 64 tokens products reach 60% of the rate
/// that they have with 256), at most `tokens`. On a GPU as many as fit 1 GiB, in multiples of 128, from 512
/// to 4096: each chunk reads and writes the whole gradient of the weight, so few of them are better.
constexpr std::int64_t head_loss_chunk(std::int64_t tokens, std::int64_t vocabulary, DType type,
                                       Target target) {
  const std::int64_t bytes = head_loss_token_bytes(vocabulary, type);
  const std::int64_t chunk =
      target == Target::cuda
          ? std::clamp<std::int64_t>((std::int64_t{1} << 30) / bytes / 128 * 128, 512, 4096)
          : std::max<std::int64_t>(256, (std::int64_t{32} << 20) / bytes / 16 * 16);
  return std::min(tokens, chunk);
}

/// What the products of head_loss and head_loss_grad need: the logits, the gradient of the input, summed over
/// the vocabulary, and that of the weight, of type `gradient`, summed over the tokens of a chunk (of which
/// one is odd if `tokens` is).
constexpr std::int64_t head_loss_gemm_bytes(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width,
                                            DType type, DType gradient, Target target) {
  const std::int64_t chunk = head_loss_chunk(tokens, vocabulary, type, target);
  const DType sums = type == DType::f64 ? DType::f64 : DType::f32;
  return std::max({gemm_workspace_bytes(chunk, vocabulary, width, type, sums, target),
                   gemm_workspace_bytes(chunk, width, vocabulary, type, type, target),
                   gemm_workspace_bytes(vocabulary, width, tokens, type, gradient, target)});
}

/// head_loss_grad; head_loss with gradient = fp32.
constexpr std::int64_t head_loss_workspace_bytes(std::int64_t tokens, std::int64_t vocabulary,
                                                 std::int64_t width, DType type, DType gradient,
                                                 Target target) {
  return head_loss_gemm_bytes(tokens, vocabulary, width, type, gradient, target) +
         head_loss_chunk(tokens, vocabulary, type, target) * head_loss_token_bytes(vocabulary, type);
}

/// What the products of the gradients of a split head need, for a chunk of tokens and this rank's words.
constexpr std::int64_t head_split_products_bytes(std::int64_t tokens, std::int64_t words, std::int64_t width,
                                                 DType type, DType gradient, Target target) {
  return std::max(gemm_workspace_bytes(tokens, width, words, type, type, target),
                  gemm_workspace_bytes(words, width, tokens, type, gradient, target));
}
/// The same, and the gradients of the logits where they are narrower than these.
constexpr std::int64_t head_split_grad_bytes(std::int64_t tokens, std::int64_t words, std::int64_t width,
                                             DType type, DType gradient, Target target) {
  const bool apart = size_of(type) < accumulator_bytes(type);
  return head_split_products_bytes(tokens, words, width, type, gradient, target) +
         (apart ? tokens * head_loss_stride(words) * size_of(type) : 0);
}

// Light kernels.

/// Rows that one block of the rmsnorm backward sums into one partial gradient of the weight: at most 64
/// blocks; on a GPU at most 512, so that they fill it.
constexpr std::int64_t rmsnorm_rows_per_block(std::int64_t rows, Target target) {
  if (target == Target::cuda) return std::max<std::int64_t>(4, ceil_div(rows, 512));
  return std::max<std::int64_t>(32, ceil_div(rows, 64));
}

/// rmsnorm_backward on x [rows, cols] of T: one partial weight gradient in acc_t<T> per block of rows.
constexpr std::int64_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t cols, DType type,
                                                        Target target) {
  const std::int64_t height = rmsnorm_rows_per_block(rows, target);
  return ceil_div(rows, height) * cols * accumulator_bytes(type);
}

/// xielu_backward on x [rows, n]: two sums in fp64 for each row.
constexpr std::int64_t xielu_backward_workspace_bytes(std::int64_t rows) {
  return round_up(rows * 2 * static_cast<std::int64_t>(sizeof(double)), 64);
}

/// sort_by_expert takes the experts of tokens in blocks of so many: one on a CPU, at most 256 on a GPU.
constexpr std::int64_t expert_block(std::int64_t choices, Target target) {
  return target == Target::cuda ? std::max<std::int64_t>(512, ceil_div(choices, 256)) : choices;
}
/// sort_by_expert: for each block, where its rows of each expert begin.
constexpr std::int64_t sort_by_expert_workspace_bytes(std::int64_t choices, std::int64_t experts,
                                                      Target target) {
  return round_up(4 * experts * ceil_div(choices, expert_block(choices, target)), 64);
}

/// Elements of the routes of a rank, int32, in this order: of each member, the rows that go to it; the rows
/// that come from it; again the rows that go to it; the number of the first row that goes to it; by member
/// and own expert, where in the member's slot its rows begin, and where the last ones end; by member and own
/// expert, where its rows begin among all that the rank has, which lie expert by expert and then member by
/// member.
constexpr std::int64_t route_elements(std::int64_t members, std::int64_t own_experts) {
  return members * (2 * own_experts + 5);
}
constexpr std::int64_t experts_of_routes(std::int64_t elements, std::int64_t members) {
  return (elements / members - 5) / 2;
}

/// router_sums adds tokens in blocks of so many, and then the blocks: the error grows with the root of their
/// number. On a GPU at most 1024 blocks.
constexpr std::int64_t router_sums_block(std::int64_t tokens, Target target) {
  return target == Target::cuda ? std::max<std::int64_t>(8, ceil_div(tokens, 1024)) : 64;
}
/// router_sums: the sums of each block.
constexpr std::int64_t router_sums_workspace_bytes(std::int64_t tokens, std::int64_t experts, DType type,
                                                   Target target) {
  const std::int64_t blocks = ceil_div(tokens, router_sums_block(tokens, target));
  return round_up(blocks * (2 * experts + 3) * accumulator_bytes(type), 64);
}

/// fp8_quantize_tensor looks for the largest of `count` elements in parts of so many: at most 512, a wave of
/// teams on a GPU, whose results every team that goes on reads.
inline constexpr std::int64_t fp8_most_parts = 512;
constexpr std::int64_t fp8_part(std::int64_t count) {
  return round_up(ceil_div(count, fp8_most_parts), 4096);
}

/// fp8_quantize_tensor: the largest magnitude of each part.
inline constexpr std::int64_t fp8_quantize_workspace_bytes = 4 * fp8_most_parts;

/// Elements that are looked through at once where many share a scale.
inline constexpr std::int64_t fp8_weight_chunk = 4096;

/// make_fp8_largest, for each run of `count` elements: the largest magnitude of each chunk.
constexpr std::int64_t fp8_weight_workspace_bytes(std::int64_t count) {
  return 4 * ceil_div(count, fp8_weight_chunk);
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
