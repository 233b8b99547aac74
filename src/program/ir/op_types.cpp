#include "program/ir/op_types.hpp"

#include <array>

#include "base/error.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "model/attention_span.hpp"
#include "program/ir/attention_op.hpp"
#include "program/ir/fit.hpp"
#include "program/passes/adjoints.hpp"
#include "program/passes/conversions.hpp"
#include "program/passes/split_head.hpp"

namespace ztrain::program {
namespace {

double dim(const Program& p, TensorId t, std::size_t d) {
  return static_cast<double>(p.tensor(t).shape[d]);
}

/// 2 T n k: operand 0 is [T, n or k], operand 1 the weight [n, k], or the first of joined ones.
double linear_flops(const Program& p, const Op& op) {
  double rows = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(op.attributes.integer("parts", 1)); ++i)
    rows += dim(p, op.inputs[1 + i], 0);
  return 2 * dim(p, op.inputs[0], 0) * rows * dim(p, op.inputs[1], 1);
}
double grad_weight_flops(const Program& p, const Op& op) {
  return 2 * dim(p, op.inputs[0], 0) * dim(p, op.inputs[0], 1) * dim(p, op.inputs[1], 1);
}
double head_grad_flops(const Program& p, const Op& op) {
  const bool weight_grad = op.outputs.size() > 3;
  return (weight_grad ? 3 : 2) * linear_flops(p, op);
}

/// Causal: half of T x T, less what is outside the window. A micro-batch of several sequences does less;
/// `sequence` is set where the caller knows it.
double attention_flops(const Program& p, const Op& op) {
  const double tokens = dim(p, op.inputs[0], 0);
  const std::int64_t sequence = op.attributes.integer("sequence", p.tensor(op.inputs[0]).shape[0]);
  const double span = model::attention_span(sequence, op.attributes.integer("window", 0));
  const AttentionShape s = attention_shape(p.tensor(op.inputs[0]).shape, op.attributes);
  return 4 * tokens * span * static_cast<double>(s.heads * s.head_dim);
}
/// Over a full cache.
double attention_cached_flops(const Program& p, const Op& op) {
  const double capacity = dim(p, op.inputs[1], 0) / static_cast<double>(op.attributes.integer("kv_heads"));
  return 4 * dim(p, op.inputs[0], 0) * capacity * dim(p, op.inputs[0], 1);
}
double attention_grad_flops(const Program& p, const Op& op) {
  return 2.5 * attention_flops(p, op);
}

std::int64_t head_workspace(const Program& p, const Op& op) {
  const Tensor& h = p.tensor(op.inputs[0]);
  return head_loss_workspace_bytes(h.shape[0], p.tensor(op.inputs[1]).shape[0], h.shape[1], h.dtype,
                                   DType::f32, p.target);
}

/// The outputs one below the other are C[m, n]; operand 0 holds m x k elements, whichever way round it is
/// read.
std::int64_t gemm_workspace(const Program& p, const Op& op) {
  const Tensor& c = p.tensor(op.outputs[0]);
  std::int64_t m = 0;
  for (const TensorId out : op.outputs) m += p.tensor(out).shape[0];
  const std::int64_t k = elements(p.tensor(op.inputs[0]).shape) / m;
  return gemm_workspace_bytes(m, c.shape[1], k, p.tensor(op.inputs[0]).dtype, c.dtype, p.target);
}

std::int64_t fp8_workspace(const Program& p, const Op&) {
  return gemm_fp8_workspace_bytes(p.target);
}

std::int64_t quantize_workspace(const Program&, const Op& op) {
  return op.attributes.integer("rowwise") != 0 ? 0 : fp8_quantize_workspace_bytes;
}

/// Logits of the `rows` tokens of a chunk: operand 0 is h of all tokens, operand 1 this rank's words.
std::int64_t head_logits_workspace(const Program& p, const Op& op) {
  const Tensor& w = p.tensor(op.inputs[1]);
  return gemm_workspace_bytes(op.attributes.integer("rows"), w.shape[0], w.shape[1], w.dtype,
                              p.tensor(op.outputs[0]).dtype, p.target);
}
double head_logits_flops(const Program& p, const Op& op) {
  return 2 * static_cast<double>(op.attributes.integer("rows")) * dim(p, op.inputs[1], 0) *
         dim(p, op.inputs[1], 1);
}
double head_logits_grad_flops(const Program& p, const Op& op) {
  const bool weight_grad = op.outputs.size() > 3;
  const auto rows = static_cast<double>(op.attributes.integer("rows"));
  return (weight_grad ? 4 : 2) * rows * dim(p, op.inputs[3], 0) * dim(p, op.inputs[3], 1);
}

/// 2 m n k of C[m, n]: operand 0 is [m, k].
double fp8_flops(const Program& p, const Op& op) {
  return 2 * dim(p, op.outputs[0], 0) * dim(p, op.outputs[0], 1) * dim(p, op.inputs[0], 1);
}

std::int64_t attention_workspace(const Program& p, const Op& op) {
  const Tensor& q = p.tensor(op.inputs[0]);
  return attention_forward_bytes(attention_shape(q.shape, op.attributes), q.dtype, p.target);
}

std::int64_t sum_workspace(const Program& p, const Op& op) {
  return sum_squares_workspace_bytes(elements(p.tensor(op.inputs[0]).shape));
}

constexpr std::array table{
    OpType{.name = "embedding",
           .adjoint = embedding_adjoint,
           .placings = "RR>R II>I 0R>0 R0>P R1>1",
           .fit = fit_embedding},
    OpType{.name = "embedding_grad", .for_weights = true},
    OpType{.name = "rmsnorm", .adjoint = rmsnorm_adjoint, .placings = "RR>RR II>II 0R>00 1R>10"},
    OpType{.name = "add_rmsnorm", .overlay = 2},  // made after expansion, by fusion.cpp
    OpType{.name = "rmsnorm_grad"},
    // A bias beside a partial product is added by one rank.
    OpType{.name = "linear",
           .adjoint = linear_adjoint,
           .flops = linear_flops,
           .workspace = gemm_workspace,
           .placings = "RRR>R III>I 0RR>0 R00>1 11I>P PRI>P",
           .fit = fit_linear},
    OpType{.name = "linear_grad_input", .flops = linear_flops, .workspace = gemm_workspace},
    OpType{.name = "linear_grad_weight",
           .flops = grad_weight_flops,
           .workspace = gemm_workspace,
           .for_weights = true},
    OpType{.name = "linear_grad_bias", .for_weights = true},
    OpType{.name = "fp8_quantize",
           .workspace = quantize_workspace,
           .straight_through = true,
           .placings = "R>RR 0>00"},
    OpType{.name = "fp8_quantize_both",
           .workspace = quantize_workspace,
           .straight_through = true,
           .placings = "R>RRR 0>001",
           .without_third = "fp8_quantize"},
    OpType{.name = "fp8_transpose"},
    OpType{.name = "linear_fp8",
           .adjoint = linear_fp8_adjoint,
           .flops = fp8_flops,
           .workspace = fp8_workspace,
           .placings = "RRRRR>R 00RRR>0"},
    OpType{.name = "linear_fp8_grad_input", .flops = fp8_flops, .workspace = fp8_workspace},
    OpType{.name = "linear_fp8_grad_weight",
           .flops = fp8_flops,
           .workspace = fp8_workspace,
           .for_weights = true},
    OpType{.name = "rope_table", .placings = "R>R I>I 0>0"},
    OpType{.name = "rope", .adjoint = rope_adjoint, .overlay = 1, .placings = "RR>R II>I 00>0 1R>1"},
    OpType{.name = "attention",
           .adjoint = attention_adjoint,
           .flops = attention_flops,
           .workspace = attention_workspace,
           .placings = "RRRR>RR IIII>II 0000>00 0RR0>00 111R>11",
           .fit = fit_attention},
    OpType{.name = "attention_grad", .flops = attention_grad_flops},
    OpType{.name = "cache_append"},
    OpType{.name = "attention_cached", .flops = attention_cached_flops},
    OpType{.name = "swiglu", .adjoint = swiglu_adjoint, .placings = "RR>R II>I 00>0 11>1"},
    OpType{.name = "swiglu_grad", .overlay = 1},
    OpType{.name = "add", .adjoint = add_adjoint, .overlay = 2, .placings = "RR>R II>I 00>0 11>1 PP>P"},
    OpType{.name = "scale", .adjoint = scale_adjoint, .overlay = 1, .placings = "R>R I>I 0>0 1>1 P>P"},
    OpType{.name = "dropout",
           .adjoint = dropout_adjoint,
           .training_only = true,
           .placings = "R>R I>I 0>0 P>P",
           .fit = fit_dropout},
    OpType{.name = "copy", .adjoint = copy_adjoint},
    OpType{.name = "select_row", .placings = "RR>R II>I 1R>1"},
    OpType{.name = "head_loss",
           .adjoint = head_loss_adjoint,
           .flops = linear_flops,
           .workspace = head_workspace,
           .forward_with_gradient = true,
           .placings = "RRRR>R IIII>I 0R00>P R0RR>I",
           .fit = fit_head_loss},
    OpType{.name = "head_loss_grad", .flops = head_grad_flops},
    // The head over a split vocabulary: passes/split_head.cpp.
    OpType{.name = "head_loss_split",
           .adjoint = split_head_adjoint,
           .forward_with_gradient = true,
           .forward = split_head_forward},
    OpType{.name = "head_logits", .flops = head_logits_flops, .workspace = head_logits_workspace},
    OpType{.name = "head_split_loss"},
    OpType{.name = "head_logits_grad", .flops = head_logits_grad_flops},
    // Conversions between placements, which the placing pass inserts: passes/conversions.cpp.
    OpType{.name = "copy_to_axis", .adjoint = copy_to_axis_adjoint, .placings = "R>R 0>0", .alias = true},
    OpType{.name = "reduce_from_axis",
           .adjoint = copy_adjoint,
           .placings = "R>R 0>0",
           .forward = reduce_from_axis_forward},
    OpType{.name = "gather_from_axis",
           .adjoint = gather_from_axis_adjoint,
           .placings = "R>R 0>0 1>1",
           .forward = gather_from_axis_forward},
    OpType{.name = "scatter_to_axis",
           .adjoint = scatter_to_axis_adjoint,
           .placings = "R>R 0>0",
           .forward = scatter_to_axis_forward},
    OpType{.name = "tokens_to_columns",
           .adjoint = tokens_to_columns_adjoint,
           .placings = "R>R 1>1",
           .forward = tokens_to_columns_forward},
    OpType{.name = "columns_to_tokens",
           .adjoint = columns_to_tokens_adjoint,
           .placings = "R>R 1>1",
           .forward = columns_to_tokens_forward},
    OpType{.name = "swap_blocks"},
    // What the sharding and optimizer passes add; operands in program/passes/step_ops.hpp.
    OpType{.name = "all_gather"},
    OpType{.name = "reduce_scatter"},
    OpType{.name = "all_reduce"},
    OpType{.name = "broadcast"},
    OpType{.name = "all_to_all"},
    OpType{.name = "shift"},
    OpType{.name = "send"},
    OpType{.name = "recv"},
    OpType{.name = "release"},
    OpType{.name = "zero_gaps"},
    OpType{.name = "cast"},
    OpType{.name = "sum_squares", .workspace = sum_workspace},
    OpType{.name = "step_partials"},
    OpType{.name = "finish_step"},
    OpType{.name = "optimizer_step"},
    OpType{.name = "fp8_largest"},
    OpType{.name = "fp8_scales"},
    OpType{.name = "fp8_encode"},
};

}  // namespace

const OpType& op_type(std::string_view name) {
  for (const OpType& row : table)
    if (row.name == name) return row;
  ASSERT(false, "no op named '{}' in the op table", name);
}

void complete(Program& program, Op& op) {
  const OpType& row = op_type(op.type);
  if (const std::int64_t bytes = row.workspace ? row.workspace(program, op) : 0; bytes > 0) {
    Tensor t;
    t.name = "workspace." + op.name;
    t.dtype = DType::u8;
    t.shape = {bytes};
    t.category = Category::workspace;
    op.outputs.push_back(program.add(std::move(t)));
  }
  if (row.flops) op.flops = row.flops(program, op);
}

AxisSet axes_of(const Attributes& attributes) {
  return AxisSet::from_bits(static_cast<std::uint8_t>(attributes.integer("axes")));
}

Attributes axes_attribute(AxisSet axes) {
  return {{"axes", static_cast<std::int64_t>(axes.bits())}};
}

}  // namespace ztrain::program
