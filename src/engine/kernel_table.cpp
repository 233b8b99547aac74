#include "engine/kernel_table.hpp"

#include <array>
#include <string_view>

#include "base/error.hpp"
#include "engine/binders.hpp"

namespace ztrain::engine {
namespace {

struct Row {
  std::string_view op;
  Bound (*bind)(const Binding&);
};

constexpr std::array<Row, 52> table{{
    {"embedding", bind_embedding},
    {"embedding_grad", bind_embedding_grad},
    {"rmsnorm", bind_rmsnorm},
    {"add_rmsnorm", bind_add_rmsnorm},
    {"rmsnorm_grad", bind_rmsnorm_grad},
    {"linear", bind_linear},
    {"linear_grad_input", bind_linear_grad_input},
    {"linear_grad_weight", bind_linear_grad_weight},
    {"linear_grad_bias", bind_linear_grad_bias},
    {"fp8_quantize", bind_fp8_quantize},
    {"fp8_quantize_both", bind_fp8_quantize},
    {"fp8_transpose", bind_fp8_transpose},
    {"linear_fp8", bind_linear_fp8},
    {"linear_fp8_grad_input", bind_linear_fp8_gradient},
    {"linear_fp8_grad_weight", bind_linear_fp8_gradient},
    {"fp8_largest", bind_fp8_largest},
    {"fp8_scales", bind_fp8_scales},
    {"fp8_encode", bind_fp8_encode},
    {"rope_table", bind_rope_table},
    {"rope", bind_rope},
    {"attention", bind_attention},
    {"attention_grad", bind_attention_grad},
    {"cache_append", bind_cache_append},
    {"attention_cached", bind_attention_cached},
    {"swiglu", bind_swiglu},
    {"swiglu_grad", bind_swiglu_grad},
    {"add", bind_add},
    {"scale", bind_scale},
    {"dropout", bind_dropout},
    {"copy", bind_copy},
    {"select_row", bind_select_row},
    {"swap_blocks", bind_swap_blocks},
    {"head_loss", bind_head_loss},
    {"head_loss_grad", bind_head_loss_grad},
    {"head_logits", bind_head_logits},
    {"head_split_loss", bind_head_split_loss},
    {"head_logits_grad", bind_head_logits_grad},
    {"all_gather", bind_all_gather},
    {"reduce_scatter", bind_reduce_scatter},
    {"all_reduce", bind_all_reduce},
    {"all_to_all", bind_all_to_all},
    {"shift", bind_shift},
    {"broadcast", bind_broadcast},
    {"send", bind_send},
    {"recv", bind_recv},
    {"release", bind_release},
    {"zero_gaps", bind_zero_gaps},
    {"cast", bind_cast},
    {"sum_squares", bind_sum_squares},
    {"step_partials", bind_step_partials},
    {"finish_step", bind_finish_step},
    {"optimizer_step", bind_optimizer_step},
}};

}  // namespace

Bound bind(const Binding& b) {
  for (const Row& row : table)
    if (row.op == b.op.type) return row.bind(b);
  ASSERT(false, "no kernel named '{}' in the kernel table", b.op.type);
}

}  // namespace ztrain::engine
