#include "program/loops/loop.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/shape.hpp"
#include "program/loops/repeat.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// An iteration has the inputs of the micro-batch that is `stride` later.
void add_input_rings(Program& program, const model::Graph& graph, int micro_batches) {
  const int stride = program.repeat.stride;
  for (const model::Value& value : graph.values) {
    if (value.role != model::Role::input) continue;
    const TensorId first = program.find(input_name(value.name, 0));
    const TensorId apart = program.find(input_name(value.name, 1)) - first;
    for (int begin = 0; begin < stride; ++begin) {
      Ring ring;
      for (int m = begin; m < micro_batches; m += stride) ring.tensors.push_back(first + m * apart);
      ring.slots = static_cast<int>(ring.tensors.size());
      add_ring(program, std::move(ring));
    }
  }
}

/// Finds what an op behind the body has for what it was expanded with.
class Later {
 public:
  Later(Program& program, const std::vector<TensorId>& results) : program_(program), results_(results) {}

  TensorId of(TensorId id) {
    const Tensor& tensor = program_.tensor(id);
    const Repeat& repeat = program_.repeat;
    if (tensor.ring >= 0)
      return repeat.rings[at(tensor.ring)].tensors[at(tensor.ring_index + repeat.times - 1)];
    if (tensor.base == no_tensor || std::ranges::find(results_, tensor.base) == results_.end()) return id;
    const auto [it, fresh] = rows_.try_emplace(id, no_tensor);
    if (fresh) {
      Tensor moved = tensor;
      moved.offset += (repeat.times - 1) * repeat.stride * moved.bytes();
      it->second = program_.add(std::move(moved));
    }
    return it->second;
  }

 private:
  Program& program_;
  const std::vector<TensorId>& results_;
  std::map<TensorId, TensorId> rows_;  ///< of the results
};

}  // namespace

void declare_loop(Expanded& step, const model::Graph& graph, const Middle& middle, int rank) {
  Program& program = step.program;
  program.repeat.times = middle.times;
  program.repeat.stride = middle.stride;
  program.repeat.warm_up = middle.warm_up;
  add_input_rings(program, graph, middle.few + middle.shift());
  Later later(program, step.results);
  auto op =
      program.ops.begin() + static_cast<std::ptrdiff_t>(step.turn_begins[at(middle.bodies[at(rank)].end())]);
  while (op != program.ops.end() && !is_compute(op->action.kind)) ++op;
  for (; op != program.ops.end(); ++op) {
    if (op->action.micro >= 0) op->action.micro += middle.shift();
    for (auto* operands : {&op->inputs, &op->outputs})
      for (TensorId& id : *operands) id = later.of(id);
  }
}

void number_ops(Program& program) {
  for (Op& op : program.ops)
    if (const auto number = op_type(op.type).number) number(program, op);
}

}  // namespace ztrain::program
