#include "program/passes/expand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/ir/placement.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

class Expander {
 public:
  Expander(Program base, const model::Graph& graph, const ExpandOptions& options)
      : graph_(graph), options_(options), trained_(trained_values(graph)) {
    result_.program = std::move(base);
    result_.program.blocks = graph.blocks;
    scalars_ = result_.program.find("scalars");
    reserve();
    add_parameters();
    find_blocks();
    mark_boundaries();
  }

  Expanded run() {
    if (options_.training) add_results();
    if (options_.chunks.empty()) options_.chunks = {{0, static_cast<int>(graph_.blocks.size())}};
    std::map<int, int> turns_left;
    for (const Turn& turn : options_.turns) ++turns_left[turn.micro];
    for (const Turn& turn : options_.turns) {
      result_.turn_begins.push_back(result_.program.ops.size());
      take(turn);
      if (--turns_left[turn.micro] == 0) micros_.erase(turn.micro);
    }
    return std::move(result_);
  }

 private:
  /// About what comes: in training ops and values stand for forward, recompute and backward.
  void reserve() {
    const std::size_t each = options_.turns.size() * (options_.training ? 2 : 1);
    result_.program.ops.reserve(result_.program.ops.size() + each * graph_.nodes.size());
    result_.program.tensors.reserve(result_.program.tensors.size() + each * graph_.values.size());
  }

  void add_parameters() {
    for (const model::Parameter& p : graph_.parameters) {
      const model::Value& value = graph_.value(p.value);
      result_.parameters.push_back(placeholder(p.name, value.dtype, value.shape, Category::parameter));
    }
  }

  /// The losses of all micro-batches lie together: those that are expanded write rows of them.
  void add_results() {
    for (const model::ValueId v : graph_.reported()) {
      const model::Value& value = graph_.value(v);
      Shape shape = value.shape;
      shape.insert(shape.begin(), options_.micro_batches);
      result_.results.push_back(placeholder(value.name, value.dtype, shape, Category::activation));
    }
  }

  void make_row(TensorId value, TensorId of_results, int micro) {
    Tensor& t = result_.program.tensor(value);
    t.base = of_results;
    t.offset = micro * t.bytes();
  }

  void find_blocks() {
    nodes_of_.assign(graph_.blocks.size(), {0, 0});
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int block = graph_.nodes[i].block;
      ASSERT(i == 0 || graph_.nodes[i - 1].block <= block, "the nodes of block {} are not neighbours",
             graph_.blocks[at(block)]);
      auto& range = nodes_of_[at(block)];
      if (range.second == 0) range.first = i;
      range.second = i + 1;
    }
  }

  /// A value read outside its block is kept from forward to backward even under recompute.
  void mark_boundaries() {
    std::vector<int> producer(graph_.values.size(), -1);
    boundary_.assign(graph_.values.size(), false);
    for (const model::Node& n : graph_.nodes) {
      for (auto in : n.inputs)
        if (producer[at(in)] >= 0 && producer[at(in)] != n.block) boundary_[at(in)] = true;
      for (auto out : n.outputs) producer[at(out)] = n.block;
    }
  }

  /// What a micro-batch keeps from its first turn to its last.
  struct MicroBatch {
    std::vector<TensorId> values;                 ///< of the graph, in forward
    std::vector<TensorId> seen;                   ///< the same as backward reads them
    std::unique_ptr<Tape> tape;                   ///< from the first backward on
    std::map<int, std::vector<Op>> weights_half;  ///< by chunk: what its backward for inputs left
  };

  void take(const Turn& turn) {
    MicroBatch& m = micros_[turn.micro];
    if (m.values.empty()) m.values = values_of(turn.micro);
    switch (turn.kind) {
      case TurnKind::forward:
        return forward(turn, m);
      case TurnKind::backward:
        return backward(turn, m);
      case TurnKind::backward_inputs:
        return backward_for_inputs(turn, m);
      case TurnKind::backward_weights:
        return backward_for_weights(turn, m);
    }
  }

  std::vector<TensorId> values_of(int micro) {
    std::vector<TensorId> values(graph_.values.size(), no_tensor);
    for (std::size_t v = 0; v < values.size(); ++v) {
      const model::Value& value = graph_.values[v];
      if (value.role == model::Role::parameter) values[v] = result_.parameters[at(value.parameter)];
      if (value.role == model::Role::input) values[v] = input(value.name, micro);
      if (value.role == model::Role::activation) values[v] = activation(value, micro, "");
      if (value.role == model::Role::state) values[v] = persistent(value.name);
    }
    const std::vector<model::ValueId> reported = graph_.reported();
    for (std::size_t i = 0; options_.training && i < reported.size(); ++i)
      make_row(values[at(reported[i])], result_.results[i], micro);
    return values;
  }

  /// Blocks [begin, end) of a chunk.
  const std::pair<int, int>& blocks_of(int chunk) const { return options_.chunks[at(chunk)]; }

  void forward(const Turn& turn, MicroBatch& m) {
    const auto [begin, end] = blocks_of(turn.chunk);
    for (int block = begin; block < end; ++block)
      for (std::size_t i = nodes_of_[at(block)].first; i < nodes_of_[at(block)].second; ++i) {
        const model::Node& n = graph_.nodes[i];
        const OpType& type = op_type(n.op);
        if (type.alias || (!options_.training && type.training_only))
          m.values[at(n.outputs[0])] = m.values[at(n.inputs[0])];
        else if (!(options_.training && type.forward_with_gradient && trained_[at(n.outputs[0])]))
          clone(n, m.values, {ActionKind::forward, block, turn.micro});
      }
    if (options_.training || turn.chunk + 1 < std::ssize(options_.chunks)) return;
    for (const model::ValueId v : graph_.of_head())
      if (v >= 0) result_.results.push_back(m.values[at(v)]);
    for (const model::ValueId v : graph_.experts.losses) result_.results.push_back(m.values[at(v)]);
  }

  void backward(const Turn& turn, MicroBatch& m) {
    const std::size_t first = result_.program.ops.size();
    if (!m.tape) start_backward(turn.micro, m);
    const auto [begin, end] = blocks_of(turn.chunk);
    for (int block = end - 1; block >= begin; --block) {
      recompute(block, turn.micro, m.seen);
      m.tape->enter(block, m.seen);
      for (std::size_t i = nodes_of_[at(block)].second; i-- > nodes_of_[at(block)].first;) {
        const model::Node& n = graph_.nodes[i];
        const OpType& type = op_type(n.op);
        if (!type.adjoint || !m.tape->wants(n.outputs[0])) continue;
        if (type.forward_with_gradient || n.op == ToStage::op || m.tape->gradient(n.outputs[0]) != no_tensor)
          type.adjoint(*m.tape, n);
      }
    }
    for (std::size_t i = first; i < result_.program.ops.size(); ++i)
      if (Op& op = result_.program.ops[i]; op.action.kind == ActionKind::backward)
        complete(result_.program, op);
  }

  void start_backward(int micro, MicroBatch& m) {
    m.seen = m.values;
    add_parameter_gradients(micro);
    m.tape = std::make_unique<Tape>(result_.program, graph_, gradients_.back(), micro);
  }

  void backward_for_inputs(const Turn& turn, MicroBatch& m) {
    const std::size_t first = result_.program.ops.size();
    backward(turn, m);
    std::vector<Op>& later = m.weights_half[turn.chunk];
    later = take_weights_half(result_.program, first, m.tape->gradients(), options_.late_weights);
    mark(std::span(result_.program.ops).subspan(first), Half::inputs);
    mark(later, Half::weights);
  }

  static void mark(std::span<Op> ops, Half half) {
    for (Op& op : ops)
      if (op.action.kind == ActionKind::backward) op.action.half = half;
  }

  void backward_for_weights(const Turn& turn, MicroBatch& m) {
    const auto half = m.weights_half.find(turn.chunk);
    ASSERT(half != m.weights_half.end(), "{} has no half for inputs before it", describe(turn));
    std::ranges::move(half->second, std::back_inserter(result_.program.ops));
    m.weights_half.erase(half);
  }

  /// Forward ops again, with fresh tensors for what the block keeps to itself; drop_dead_ops removes what is
  /// not needed.
  void recompute(int block, int micro, std::vector<TensorId>& values) {
    const auto [begin, end] = nodes_of_[at(block)];
    for (std::size_t i = begin; i < end; ++i) {
      const model::Node& n = graph_.nodes[i];
      const OpType& type = op_type(n.op);
      if (type.alias) values[at(n.outputs[0])] = values[at(n.inputs[0])];
      if (!options_.recompute.drops(n) || type.forward_with_gradient || type.alias || type.between_stages ||
          type.kept)
        continue;
      bool inner = false;
      for (auto out : n.outputs) {
        if (boundary_[at(out)]) continue;
        values[at(out)] = activation(graph_.value(out), micro, ".again");
        inner = true;
      }
      if (inner) clone(n, values, {ActionKind::recompute, block, micro});
    }
  }

  void clone(const model::Node& n, const std::vector<TensorId>& values, Action action) {
    if (const auto forward = op_type(n.op).forward) {
      Operands operands{{}, {}, action};
      for (auto in : n.inputs) operands.inputs.push_back(values[at(in)]);
      for (auto out : n.outputs) operands.outputs.push_back(values[at(out)]);
      const std::size_t first = result_.program.ops.size();
      forward(result_.program, operands, n);
      for (std::size_t i = first; i < result_.program.ops.size(); ++i)
        complete(result_.program, result_.program.ops[i]);
      return;
    }
    Op op{.type = n.op, .name = n.name, .attributes = n.attributes, .action = action};
    for (auto in : n.inputs) op.inputs.push_back(values[at(in)]);
    if (op_type(n.op).training_only) op.inputs.push_back(scalars_);
    for (auto out : n.outputs) op.outputs.push_back(values[at(out)]);
    complete(result_.program, op);
    result_.program.ops.push_back(std::move(op));
  }

  void add_parameter_gradients(int micro) {
    std::vector<TensorId> set;
    for (std::size_t i = 0; i < graph_.parameters.size(); ++i) {
      const model::Parameter& p = graph_.parameters[i];
      const bool known =
          !gradients_.empty() && i < options_.accumulate_locally.size() && options_.accumulate_locally[i];
      set.push_back(known ? gradients_.front().tensor[i]
                          : placeholder(fmt::format("grad.{}.{}", p.name, micro), options_.gradients,
                                        graph_.value(p.value).shape, Category::gradient));
    }
    gradients_.push_back({std::move(set), written_});
    result_.gradients.push_back(gradients_.back().tensor);
  }

  TensorId input(const std::string& name, int micro) { return persistent(input_name(name, micro)); }

  TensorId persistent(const std::string& name) {
    const TensorId id = result_.program.find(name);
    ASSERT(id != no_tensor, "the program has no tensor '{}'", name);
    return id;
  }

  TensorId activation(const model::Value& value, int micro, const char* suffix) {
    return placeholder(fmt::format("{}.{}{}", value.name, micro, suffix), value.dtype, value.shape,
                       Category::activation);
  }

  TensorId placeholder(const std::string& name, DType dtype, const Shape& shape, Category category) {
    return result_.program.add({.name = name, .dtype = dtype, .shape = shape, .category = category});
  }

  const model::Graph& graph_;
  ExpandOptions options_;
  Expanded result_;
  TensorId scalars_ = no_tensor;
  std::vector<bool> trained_;  ///< by value: backward asks for its gradient
  std::vector<bool> boundary_;
  std::vector<std::pair<std::size_t, std::size_t>> nodes_of_;  ///< by block: its nodes
  std::map<int, MicroBatch> micros_;
  std::set<TensorId> written_;                ///< gradients of parameters
  std::deque<ParameterGradients> gradients_;  ///< by set: tapes refer to them
};

}  // namespace

Expanded expand(Program base, const model::Graph& graph, const ExpandOptions& options) {
  return Expander(std::move(base), graph, options).run();
}

std::string input_name(const std::string& input, int micro) {
  return fmt::format("{}.{}", input, micro);
}

void drop_dead_ops(Program& program, const std::vector<TensorId>& keep) {
  std::vector<bool> live(program.tensors.size(), false);
  for (std::size_t t = 0; t < live.size(); ++t)
    live[t] = program.tensors[t].persistent || program.tensors[t].category == Category::gradient;
  for (TensorId t : keep) live[at(t)] = true;
  std::vector<Op> kept;
  for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op) {
    const bool message = op->comm.kind == CommKind::send || op->comm.kind == CommKind::recv;
    const bool needed = message || op->type == Release::op ||
                        std::any_of(op->outputs.begin(), op->outputs.end(),
                                    [&](TensorId t) { return live[at(t)] || live[at(program.storage(t))]; });
    if (!needed) continue;
    const std::string_view plain = op_type(op->type).without_third;
    if (!plain.empty() && !live[at(op->outputs[2])]) {
      op->type = plain;
      op->outputs.erase(op->outputs.begin() + 2);
    }
    for (TensorId t : op->inputs) live[at(t)] = true;
    kept.push_back(std::move(*op));
  }
  std::reverse(kept.begin(), kept.end());
  program.ops = std::move(kept);
}

void overlay_in_place(Program& program, std::vector<TensorId>& results) {
  std::vector<OpId> last_read(program.tensors.size(), -1);
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    for (TensorId t : program.ops[i].inputs) last_read[at(t)] = static_cast<OpId>(i);
  for (const TensorId t : results) last_read[at(t)] = static_cast<OpId>(program.ops.size());
  std::vector<TensorId> stands_for(program.tensors.size());
  for (std::size_t t = 0; t < stands_for.size(); ++t) stands_for[t] = static_cast<TensorId>(t);
  const auto may_reuse = [&](TensorId in, TensorId out, OpId here) {
    const Tensor &a = program.tensor(in), &b = program.tensor(out);
    return last_read[at(in)] == here && a.category == Category::activation &&
           b.category == Category::activation && !a.persistent && !b.persistent && a.base == no_tensor &&
           b.base == no_tensor && a.dtype == b.dtype && a.shape == b.shape && a.tier == b.tier;
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    for (TensorId& t : op.inputs) t = stands_for[at(t)];
    for (TensorId& t : op.outputs) t = stands_for[at(t)];
    const int candidates = op_type(op.type).overlay;
    for (int k = 0; k < candidates; ++k) {
      const TensorId in = op.inputs[at(k)], out = op.outputs[0];
      if (!may_reuse(in, out, static_cast<OpId>(i))) continue;
      stands_for[at(out)] = in;
      last_read[at(in)] = last_read[at(out)];
      op.outputs[0] = in;
      break;
    }
  }
  for (TensorId& t : results) t = stands_for[at(t)];
}

}  // namespace ztrain::program
