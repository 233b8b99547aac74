#include "program/adjoints.hpp"

#include "base/attention_work.hpp"
#include "base/kernel_workspace.hpp"
#include "program/attention_op.hpp"
#include "program/op_types.hpp"
#include "program/tape.hpp"

namespace ztrain::program {
namespace {

Attributes accumulate(const GradientTarget& target) {
  return {{"accumulate", std::int64_t{target.accumulate}}};
}

/// The op reads what it adds to.
void reads_target(Op& op, const GradientTarget& target) {
  if (target.accumulate) op.inputs.push_back(target.tensor);
}

}  // namespace

void embedding_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dw = t.target(n.inputs[1]);
  Op& op = t.emit("embedding_grad", n.name, {t.tensor(n.inputs[0]), t.gradient(n.outputs[0])}, {dw.tensor},
                  accumulate(dw));
  reads_target(op, dw);
}

void rmsnorm_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dw = t.target(n.inputs[1]);
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  std::vector<TensorId> inputs{t.tensor(n.inputs[0]), t.tensor(n.inputs[1]), t.tensor(n.outputs[1]),
                               t.gradient(n.outputs[0])};
  if (addend != no_tensor) inputs.push_back(addend);
  const Tensor& x = t.info(inputs[0]);
  const std::int64_t width = t.info(inputs[1]).shape[0], rows = elements(x.shape) / width;
  const TensorId ws =
      t.workspace(n.name, rmsnorm_backward_workspace_bytes(rows, width, x.dtype, t.kernels()));
  Attributes attributes = accumulate(dw);
  attributes.set("addend", std::int64_t{addend != no_tensor});
  Op& op = t.emit("rmsnorm_grad", n.name, std::move(inputs), {dx, dw.tensor, ws}, std::move(attributes));
  reads_target(op, dw);
}

void linear_adjoint(Tape& t, const model::Node& n) {
  const model::ValueId x = n.inputs[0], w = n.inputs[1];
  const TensorId dy = t.gradient(n.outputs[0]);
  if (t.wants(x)) {
    const GradientTarget dx = t.target(x);
    Op& op = t.emit("linear_grad_input", n.name, {dy, t.tensor(w)}, {dx.tensor}, accumulate(dx));
    reads_target(op, dx);
  }
  if (t.wants(w)) {
    const GradientTarget dw = t.target(w);
    Op& op = t.emit("linear_grad_weight", n.name, {dy, t.tensor(x)}, {dw.tensor}, accumulate(dw));
    reads_target(op, dw);
  }
  if (n.inputs.size() > 2 && t.wants(n.inputs[2])) {
    const GradientTarget db = t.target(n.inputs[2]);
    Op& op = t.emit("linear_grad_bias", n.name, {dy}, {db.tensor}, accumulate(db));
    reads_target(op, db);
  }
}

void rope_adjoint(Tape& t, const model::Node& n) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  t.emit("rope", n.name, {t.gradient(n.outputs[0]), t.tensor(n.inputs[1])}, {dx},
         {{"inverse", std::int64_t{1} - n.attributes.integer("inverse")}});
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

void attention_adjoint(Tape& t, const model::Node& n) {
  std::vector<TensorId> inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(t.tensor(n.inputs[static_cast<std::size_t>(i)]));
  inputs.push_back(t.tensor(n.outputs[0]));
  inputs.push_back(t.tensor(n.outputs[1]));
  inputs.push_back(t.gradient(n.outputs[0]));
  inputs.push_back(t.tensor(n.inputs[3]));
  std::vector<TensorId> outputs;
  std::vector<TensorId> addends;
  for (int i = 0; i < 3; ++i) {
    const auto [d, addend] = t.target_with_addend(n.inputs[static_cast<std::size_t>(i)]);
    outputs.push_back(d);
    addends.push_back(addend);
  }
  const Tensor& q = t.info(inputs[0]);
  outputs.push_back(t.workspace(
      n.name, attention_backward_bytes(attention_shape(q.shape, n.attributes), q.dtype, t.kernels())));
  t.emit("attention_grad", n.name, std::move(inputs), std::move(outputs), n.attributes);
  for (std::size_t i = 0; i < 3; ++i)
    if (addends[i] != no_tensor) t.pass(n.inputs[i], addends[i]);
}

void swiglu_adjoint(Tape& t, const model::Node& n) {
  const auto [dgate, gate_addend] = t.target_with_addend(n.inputs[0]);
  const auto [dup, up_addend] = t.target_with_addend(n.inputs[1]);
  t.emit("swiglu_grad", n.name, {t.tensor(n.inputs[0]), t.tensor(n.inputs[1]), t.gradient(n.outputs[0])},
         {dgate, dup});
  if (gate_addend != no_tensor) t.pass(n.inputs[0], gate_addend);
  if (up_addend != no_tensor) t.pass(n.inputs[1], up_addend);
}

void add_adjoint(Tape& t, const model::Node& n) {
  for (const auto input : n.inputs) t.pass(input, t.gradient(n.outputs[0]));
}

void scale_adjoint(Tape& t, const model::Node& n) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  t.emit("scale", n.name, {t.gradient(n.outputs[0])}, {dx}, n.attributes);
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

/// The same mask again: it is a function of the attributes and the step.
void dropout_adjoint(Tape& t, const model::Node& n) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  t.emit("dropout", n.name, {t.gradient(n.outputs[0]), t.scalars()}, {dx}, n.attributes);
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

void copy_adjoint(Tape& t, const model::Node& n) {
  t.pass(n.inputs[0], t.gradient(n.outputs[0]));
}

void copy_to_axis_adjoint(Tape& t, const model::Node& n) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  t.all_reduce(n.name, t.gradient(n.outputs[0]), dx, axes_of(n.attributes));
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

void head_loss_adjoint(Tape& t, const model::Node& n) {
  const bool weight_grad = t.wants(n.inputs[1]);
  const GradientTarget dw = weight_grad ? t.target(n.inputs[1]) : GradientTarget{};
  const auto [dh, addend] = t.target_with_addend(n.inputs[0]);
  std::vector<TensorId> inputs;
  for (const auto v : n.inputs) inputs.push_back(t.tensor(v));
  inputs.push_back(t.scalars());
  const Tensor& h = t.info(inputs[0]);
  const Tensor& w = t.info(inputs[1]);
  // Without the weight's gradient: as if it were of the activations' type, for which no more is needed.
  const TensorId ws = t.workspace(
      n.name, head_loss_workspace_bytes(h.shape[0], w.shape[0], h.shape[1], h.dtype,
                                        weight_grad ? t.info(dw.tensor).dtype : h.dtype, t.kernels()));
  std::vector<TensorId> outputs{t.tensor(n.outputs[0]), dh, ws};
  if (weight_grad) outputs.push_back(dw.tensor);
  Op& op = t.emit("head_loss_grad", n.name, std::move(inputs), std::move(outputs), accumulate(dw));
  reads_target(op, dw);
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

}  // namespace ztrain::program
