#include "program/passes/tape.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {

Tape::Tape(Program& program, const model::Graph& graph, ParameterGradients& gradients, int micro)
    : program_(program),
      graph_(graph),
      gradients_(gradients),
      micro_(micro),
      scalars_(program.find("scalars")),
      wanted_(trained_values(graph)) {
  entries_.resize(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) sources_.push_back(static_cast<model::ValueId>(v));
  makers_.assign(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const model::Node& node = graph.nodes[i];
    if (op_type(node.op).straight_through) sources_[at(node.outputs[0])] = source(node.inputs[0]);
    for (auto out : node.outputs) makers_[at(out)] = static_cast<int>(i);
  }
}

std::vector<bool> trained_values(const model::Graph& graph) {
  std::vector<bool> trained(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (const int p = graph.values[v].parameter; p >= 0) trained[v] = graph.parameters[at(p)].trainable;
  for (const model::Node& node : graph.nodes) {
    bool any = node.op == FromStage::op && record_of<FromStage>(node.attributes).gradient;
    for (auto in : node.inputs) any = any || trained[at(in)];
    for (auto out : node.outputs) trained[at(out)] = any;
  }
  return trained;
}

void Tape::enter(int block, const std::vector<TensorId>& values) {
  block_ = block;
  values_ = &values;
}

TensorId Tape::scalars() const {
  ASSERT(scalars_ != no_tensor,
         "a backward op reads the step's scalars, but the program has no tensor of that name");
  return scalars_;
}

std::vector<TensorId> Tape::gradients() const {
  std::vector<TensorId> of;
  for (const Entry& e : entries_)
    if (e.tensor != no_tensor) of.push_back(e.tensor);
  return of;
}

TensorId Tape::fresh(model::ValueId v) {
  const model::Value& value = graph_.value(v);
  return program_.add(
      {.name = fmt::format("grad.{}.{}", value.name, micro_), .dtype = value.dtype, .shape = value.shape});
}

GradientTarget Tape::target(model::ValueId v) {
  if (const int p = graph_.value(v).parameter; p >= 0) {
    if (!wants(v)) return {fresh(v), false};
    const TensorId gradient = gradients_.tensor[at(p)];
    return {gradient, !gradients_.written.insert(gradient).second};
  }
  Entry& e = entry(v);
  if (e.tensor == no_tensor) {
    e = {fresh(v), false};
    return {e.tensor, false};
  }
  if (e.shared) {
    const TensorId copy = fresh(v);
    emit(Copy{}, graph_.value(v).name, {e.tensor}, {copy});
    e = {copy, false};
  }
  return {e.tensor, true};
}

std::pair<TensorId, TensorId> Tape::target_with_addend(model::ValueId v) {
  const TensorId addend = entry(v).tensor;
  entry(v) = {fresh(v), false};
  return {entry(v).tensor, addend};
}

void Tape::pass(model::ValueId v, TensorId g) {
  if (!wants(v)) return;
  Entry& e = entry(v);
  if (e.tensor == no_tensor) {
    e = {g, true};
    return;
  }
  const TensorId sum = fresh(v);
  emit(Add{}, graph_.value(v).name, {e.tensor, g}, {sum});
  e = {sum, false};
}

TensorId Tape::workspace(const std::string& name, std::int64_t bytes) {
  return program_.add_workspace(fmt::format("workspace.{}.{}", name, micro_), bytes);
}

TensorId Tape::temporary(const std::string& name, DType dtype, Shape shape) {
  return program_.add(
      {.name = fmt::format("{}.{}", name, micro_), .dtype = dtype, .shape = std::move(shape)});
}

void pass_gradient(Tape& t, const model::Node& n) {
  t.pass(n.inputs[0], t.gradient(n.outputs[0]));
}

}  // namespace ztrain::program
