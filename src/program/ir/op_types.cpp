#include "program/ir/op_types.hpp"

#include <array>

#include "base/error.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "layout/comm_cost.hpp"
#include "model/attention_span.hpp"
#include "program/ir/attention_op.hpp"
#include "program/passes/adjoints.hpp"

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

// Columns: name, adjoint, flops, workspace of the forward, forward_with_gradient, overlay, training_only,
// straight_through, without_third.
constexpr std::array<OpType, 45> table{{
    {"embedding", embedding_adjoint},
    {"embedding_grad"},
    {"rmsnorm", rmsnorm_adjoint},
    {"add_rmsnorm", nullptr, nullptr, nullptr, false, 2},  // made after expansion, by fusion.cpp
    {"rmsnorm_grad"},
    {"linear", linear_adjoint, linear_flops, gemm_workspace},
    {"linear_grad_input", nullptr, linear_flops, gemm_workspace},
    {"linear_grad_weight", nullptr, grad_weight_flops, gemm_workspace},
    {"linear_grad_bias"},
    {"fp8_quantize", nullptr, nullptr, quantize_workspace, false, 0, false, true},
    {"fp8_quantize_both", nullptr, nullptr, quantize_workspace, false, 0, false, true, "fp8_quantize"},
    {"fp8_transpose"},
    {"linear_fp8", linear_fp8_adjoint, fp8_flops, fp8_workspace},
    {"linear_fp8_grad_input", nullptr, fp8_flops, fp8_workspace},
    {"linear_fp8_grad_weight", nullptr, fp8_flops, fp8_workspace},
    {"rope_table"},
    {"rope", rope_adjoint, nullptr, nullptr, false, 1},
    {"attention", attention_adjoint, attention_flops, attention_workspace},
    {"attention_grad", nullptr, attention_grad_flops},
    {"cache_append"},
    {"attention_cached", nullptr, attention_cached_flops},
    {"swiglu", swiglu_adjoint},
    {"swiglu_grad", nullptr, nullptr, nullptr, false, 1},
    {"add", add_adjoint, nullptr, nullptr, false, 2},
    {"scale", scale_adjoint, nullptr, nullptr, false, 1},
    {"dropout", dropout_adjoint, nullptr, nullptr, false, 0, true},
    {"copy", copy_adjoint},
    {"copy_to_axis", copy_to_axis_adjoint},
    {"reduce_from_axis", copy_adjoint},
    {"select_row"},
    {"head_loss", head_loss_adjoint, linear_flops, head_workspace, true},
    {"head_loss_grad", nullptr, head_grad_flops},
    // What the sharding and optimizer passes add; operands in program/passes/step_ops.hpp.
    {"all_gather"},
    {"reduce_scatter"},
    {"all_reduce"},
    {"release"},
    {"zero_gaps"},
    {"cast"},
    {"sum_squares", nullptr, nullptr, sum_workspace},
    {"step_partials"},
    {"finish_step"},
    {"optimizer_step"},
    {"fp8_largest"},
    {"fp8_scales"},
    {"fp8_encode"},
}};

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

void emit_all_reduce(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  Op op;
  op.name = name;
  op.action = action;
  op.inputs = {x};
  op.outputs = {y};
  const int ranks = program.mesh.size(axes);
  if (ranks == 1) {
    op.type = "copy";
    program.ops.push_back(std::move(op));
    return;
  }
  const Tensor& info = program.tensor(x);
  const std::int64_t count = elements(info.shape);
  Tensor ws;
  ws.name = "workspace." + name;
  ws.dtype = DType::u8;
  ws.shape = {all_reduce_workspace(ranks, info.dtype, count)};
  ws.category = Category::workspace;
  op.type = "all_reduce";
  op.stream = Stream::reduce;
  op.comm.kind = CommKind::all_reduce;
  op.comm.axes = axes;
  op.comm.sent_bytes =
      all_reduce_sent(ranks, Coordinate(program.mesh, program.rank).index_in(axes), info.dtype, count);
  op.outputs.push_back(program.add(std::move(ws)));
  program.ops.push_back(std::move(op));
}

AxisSet axes_of(const Attributes& attributes) {
  return AxisSet::from_bits(static_cast<std::uint8_t>(attributes.integer("axes")));
}

Attributes axes_attribute(AxisSet axes) {
  return {{"axes", static_cast<std::int64_t>(axes.bits())}};
}

}  // namespace ztrain::program
