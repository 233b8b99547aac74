#include "program/passes/adjoints.hpp"

#include "base/error.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "program/ir/attention_op.hpp"
#include "program/ir/op_types.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

Attributes accumulate(const GradientTarget& target) {
  return {{"accumulate", std::int64_t{target.accumulate}}};
}

/// The op reads what it adds to.
void reads_target(Op& op, const GradientTarget& target) {
  if (target.accumulate) op.inputs.push_back(target.tensor);
}

/// The inputs of a linear layer from `first` on: its joined weights, or their biases.
std::vector<model::ValueId> parts_of(const model::Node& n, std::int64_t first) {
  return {n.inputs.begin() + first, n.inputs.begin() + first + n.attributes.integer("parts", 1)};
}

std::vector<TensorId> tensors(const Tape& t, const std::vector<model::ValueId>& values) {
  std::vector<TensorId> of;
  for (const model::ValueId v : values) of.push_back(t.tensor(v));
  return of;
}

/// An op whose outputs are the gradients of joined parameters: all are added to, or none.
void emit_joined(Tape& t, const char* type, const model::Node& n, const std::vector<TensorId>& inputs,
                 const std::vector<model::ValueId>& parameters) {
  std::vector<GradientTarget> targets;
  std::vector<TensorId> outputs;
  for (const model::ValueId v : parameters) {
    targets.push_back(t.target(v));
    outputs.push_back(targets.back().tensor);
    ASSERT(targets.back().accumulate == targets[0].accumulate,
           "{}: of the joined gradients some have been written and some not", n.name);
  }
  Attributes attributes = accumulate(targets[0]);
  attributes.set("parts", static_cast<std::int64_t>(parameters.size()));
  Op& op = t.emit(type, n.name, inputs, std::move(outputs), std::move(attributes));
  for (const GradientTarget& target : targets) reads_target(op, target);
}

}  // namespace

void embedding_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dw = t.target(n.inputs[1]);
  Attributes attributes = n.attributes;
  attributes.set("accumulate", std::int64_t{dw.accumulate});
  Op& op = t.emit("embedding_grad", n.name, {t.tensor(n.inputs[0]), t.gradient(n.outputs[0])}, {dw.tensor},
                  std::move(attributes));
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
  if (n.attributes.has("of_heads")) attributes.set("of_heads", std::int64_t{1});
  attributes.set("addend", std::int64_t{addend != no_tensor});
  Op& op = t.emit("rmsnorm_grad", n.name, std::move(inputs), {dx, dw.tensor, ws}, std::move(attributes));
  reads_target(op, dw);
}

void linear_adjoint(Tape& t, const model::Node& n) {
  const model::ValueId x = n.inputs[0];
  const TensorId dy = t.gradient(n.outputs[0]);
  const std::vector<model::ValueId> weights = parts_of(n, 1);
  const auto parts = static_cast<std::int64_t>(weights.size());
  if (t.wants(x)) {
    const GradientTarget dx = t.target(x);
    std::vector<TensorId> inputs = tensors(t, weights);
    inputs.insert(inputs.begin(), dy);
    Op& op = t.emit("linear_grad_input", n.name, std::move(inputs), {dx.tensor}, accumulate(dx));
    op.attributes.set("parts", parts);
    reads_target(op, dx);
  }
  if (t.wants(weights[0])) emit_joined(t, "linear_grad_weight", n, {dy, t.tensor(x)}, weights);
  if (static_cast<std::int64_t>(n.inputs.size()) > 1 + parts)
    if (const auto biases = parts_of(n, 1 + parts); t.wants(biases[0]))
      emit_joined(t, "linear_grad_bias", n, {dy}, biases);
}

void rope_adjoint(Tape& t, const model::Node& n) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  Attributes attributes = n.attributes;
  attributes.set("inverse", std::int64_t{1} - n.attributes.integer("inverse"));
  t.emit("rope", n.name, {t.gradient(n.outputs[0]), t.tensor(n.inputs[1])}, {dx}, std::move(attributes));
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

void attention_adjoint(Tape& t, const model::Node& n) {
  // The last input is document_start; before it q, k and v, or what holds all three.
  const std::vector<model::ValueId> qkv(n.inputs.begin(), n.inputs.end() - 1);
  std::vector<TensorId> inputs = tensors(t, qkv);
  inputs.push_back(t.tensor(n.outputs[0]));
  inputs.push_back(t.tensor(n.outputs[1]));
  inputs.push_back(t.gradient(n.outputs[0]));
  inputs.push_back(t.tensor(n.inputs.back()));
  std::vector<TensorId> outputs;
  std::vector<TensorId> addends;
  for (const model::ValueId v : qkv) {
    const auto [d, addend] = t.target_with_addend(v);
    outputs.push_back(d);
    addends.push_back(addend);
  }
  const Tensor& q = t.info(inputs[0]);
  outputs.push_back(t.workspace(
      n.name, attention_backward_bytes(attention_shape(q.shape, n.attributes), q.dtype, t.kernels())));
  t.emit("attention_grad", n.name, std::move(inputs), std::move(outputs), n.attributes);
  for (std::size_t i = 0; i < qkv.size(); ++i)
    if (addends[i] != no_tensor) t.pass(qkv[i], addends[i]);
}

void swiglu_adjoint(Tape& t, const model::Node& n) {
  std::vector<TensorId> inputs = tensors(t, n.inputs);
  inputs.push_back(t.gradient(n.outputs[0]));
  std::vector<TensorId> outputs, addends;
  for (const model::ValueId v : n.inputs) {
    const auto [d, addend] = t.target_with_addend(v);
    outputs.push_back(d);
    addends.push_back(addend);
  }
  t.emit("swiglu_grad", n.name, std::move(inputs), std::move(outputs));
  for (std::size_t i = 0; i < addends.size(); ++i)
    if (addends[i] != no_tensor) t.pass(n.inputs[i], addends[i]);
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
