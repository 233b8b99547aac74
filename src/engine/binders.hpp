#pragma once
// One binder per row of the kernel table.

#include "engine/kernel_table.hpp"
#include "kernels/gemm/gemm.hpp"

namespace ztrain::engine {

// Model ops (bind_model.cpp).
Bound bind_embedding(const Binding& b);
Bound bind_embedding_grad(const Binding& b);
Bound bind_rmsnorm(const Binding& b);
Bound bind_add_rmsnorm(const Binding& b);
Bound bind_rmsnorm_grad(const Binding& b);
Bound bind_rope_table(const Binding& b);
Bound bind_rope(const Binding& b);
Bound bind_swiglu(const Binding& b);
Bound bind_swiglu_grad(const Binding& b);
Bound bind_add(const Binding& b);
Bound bind_select_row(const Binding& b);
Bound bind_swap_blocks(const Binding& b);
Bound bind_scale(const Binding& b);
Bound bind_dropout(const Binding& b);
// Products and attention (bind_product.cpp), the head (bind_head.cpp).
/// How a product is done, on CPUs: the library chooses by what the processor has. On GPUs only what is slow.
/// gemm: after prepare().
std::vector<Note> product_notes(const Binding& b, const kernels::Gemm& gemm);
Bound bind_linear(const Binding& b);
Bound bind_linear_grad_input(const Binding& b);
Bound bind_linear_grad_weight(const Binding& b);
Bound bind_linear_grad_bias(const Binding& b);
Bound bind_attention(const Binding& b);
Bound bind_attention_grad(const Binding& b);
Bound bind_head_loss(const Binding& b);
Bound bind_head_loss_grad(const Binding& b);
Bound bind_head_logits(const Binding& b);
Bound bind_head_split_loss(const Binding& b);
Bound bind_head_logits_grad(const Binding& b);
// Products of 8-bit codes, and codes (bind_fp8.cpp).
Bound bind_fp8_quantize(const Binding& b);
Bound bind_fp8_transpose(const Binding& b);
Bound bind_linear_fp8(const Binding& b);
Bound bind_linear_fp8_gradient(const Binding& b);
Bound bind_fp8_largest(const Binding& b);
Bound bind_fp8_scales(const Binding& b);
Bound bind_fp8_encode(const Binding& b);
// The cache of generation (bind_cache.cpp).
Bound bind_cache_append(const Binding& b);
Bound bind_attention_cached(const Binding& b);
// Ops of the step and collectives (bind_step.cpp).
Bound bind_copy(const Binding& b);
Bound bind_cast(const Binding& b);
Bound bind_zero_gaps(const Binding& b);
Bound bind_release(const Binding& b);
Bound bind_sum_squares(const Binding& b);
Bound bind_step_partials(const Binding& b);
Bound bind_finish_step(const Binding& b);
Bound bind_optimizer_step(const Binding& b);  // bind_optimizer.cpp
Bound bind_all_gather(const Binding& b);
Bound bind_reduce_scatter(const Binding& b);
Bound bind_all_reduce(const Binding& b);
Bound bind_all_to_all(const Binding& b);
Bound bind_shift(const Binding& b);
Bound bind_broadcast(const Binding& b);
Bound bind_send(const Binding& b);
Bound bind_recv(const Binding& b);

}  // namespace ztrain::engine
