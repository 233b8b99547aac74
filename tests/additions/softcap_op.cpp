// Rows for the op table and the kernel table, a pass, a family and a schedule.

#include <algorithm>

#include "engine/binders/dispatch.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"
#include "tests/additions/softcap.hpp"
#include "tests/additions/softcap_kernel.hpp"

namespace ztrain::program {
namespace {

void softcap_adjoint(Tape& t, const model::Node& n) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[Softcap::x]);
  const model::ValueId y = n.outputs[Softcap::y];
  t.emit(SoftcapGrad{record_of<Softcap>(n.attributes).cap}, n.name, {t.tensor(y), t.gradient(y)}, {dx});
  if (addend != no_tensor) t.pass(n.inputs[Softcap::x], addend);
}

}  // namespace

std::span<const OpType> softcap_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Softcap>(), .adjoint = softcap_adjoint, .placings = "R>R I>I 0>0 1>1"},
      {.record = record<SoftcapGrad>()},
  };
  return rows;
}

std::vector<Turn> forwards_first(const ScheduleInput& input) {
  std::vector<Turn> turns;
  for (int m = 0; m < input.micro_batches; ++m) turns.push_back({TurnKind::forward, 0, m});
  // In the order of the others: gradients are added up micro-batch by micro-batch, with a rounding at each.
  for (int m = 0; m < input.micro_batches; ++m) turns.push_back({TurnKind::backward, 0, m});
  return turns;
}

}  // namespace ztrain::program

namespace ztrain::engine {
namespace {

Bound bind_softcap(const Binding& b) {
  return with_type(b.out(Softcap::y).dtype, [&]<class T>() {
    return launch(b, kernels::softcap<T>, in_vector<T>(b, Softcap::x), b.record<Softcap>().cap,
                  out_vector<T>(b, Softcap::y));
  });
}

Bound bind_softcap_grad(const Binding& b) {
  using Op = SoftcapGrad;
  return with_type(b.out(Op::dx).dtype, [&]<class T>() {
    return launch(b, kernels::softcap_grad<T>, in_vector<T>(b, Op::y), in_vector<T>(b, Op::dy),
                  b.record<Op>().cap, out_vector<T>(b, Op::dx));
  });
}

}  // namespace

std::span<const KernelRow> softcap_kernels() {
  static constexpr KernelRow rows[] = {
      {Softcap::op, bind_softcap},
      {SoftcapGrad::op, bind_softcap_grad},
  };
  return rows;
}

}  // namespace ztrain::engine

namespace ztrain::model {

void cap_head(Graph& graph, double cap) {
  const auto head = std::ranges::find(graph.nodes, HeadLoss::op, &Node::op);
  if (head == graph.nodes.end()) return;
  const ValueId h = head->inputs[HeadLoss::h];
  Value like = graph.value(h);
  like.name = "lm_head.softcap";
  graph.values.push_back(like);
  const auto capped = static_cast<ValueId>(graph.values.size()) - 1;
  head->inputs[HeadLoss::h] = capped;
  Node node{std::string(Softcap::op), like.name, {h}, {capped}, attributes_of(Softcap{cap}), head->block, {}};
  graph.nodes.insert(head, std::move(node));
}

void cap_head_of_family(Graph& graph, const config::Deck& deck, const Request&) {
  if (deck.model.family == "capped") cap_head(graph, 2);
}

}  // namespace ztrain::model
