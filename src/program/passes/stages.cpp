#include "program/passes/stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

using model::Graph;
using model::Node;
using model::Parameter;
using model::Role;
using model::ValueId;

/// The least that the costliest of so many stages costs.
double least_cost(const std::vector<double>& sums, int stages) {
  const std::size_t blocks = sums.size() - 1;
  std::vector<double> least(sums.begin(), sums.end());  // of the first so many blocks, in one stage
  for (int s = 1; s < stages; ++s)
    for (std::size_t end = blocks; end > 0; --end) {
      double best = std::numeric_limits<double>::infinity();
      for (std::size_t begin = at(s); begin < end; ++begin)
        best = std::min(best, std::max(least[begin], sums[end] - sums[begin]));
      least[end] = best;
    }
  return least[blocks];
}

class Cutter {
 public:
  Cutter(Graph& graph, const Stages& stages, const Coordinate& where, const Spreading& spread)
      : graph_(graph),
        stages_(stages),
        rank_(where[Axis::pipeline]),
        spread_(spread),
        trained_(trained_values(graph)),
        made_in_(graph.values.size(), nowhere),
        used_until_(graph.values.size(), nowhere),
        common_(graph.values.size(), false) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) common_[v] = graph.values[v].role == Role::input;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) note(graph.nodes[i]);
  }

  void run() {
    mark_parameters();
    const std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (int chunk = 0; chunk < stages_.map.chunks; ++chunk) keep(stages_.map.stage_of(rank_, chunk), nodes);
    const auto is_elsewhere = [&](ValueId v) { return v >= 0 && !kept_.contains(v); };
    for (ValueId* of_head : graph_.of_head())
      if (is_elsewhere(*of_head)) *of_head = -1;
    for (auto* of_layers : {&graph_.experts.losses, &graph_.experts.sums, &graph_.experts.overflows})
      std::erase_if(*of_layers, is_elsewhere);
    drop_unused_values();
  }

 private:
  static constexpr int nowhere = -1;

  int stage_of_block(int block) const {
    const auto after = std::ranges::upper_bound(stages_.begins, block);
    return static_cast<int>(after - stages_.begins.begin()) - 1;
  }

  /// Whether every rank can make its outputs from its own inputs, so that nobody sends them.
  bool is_common(const Node& node) const {
    return !node.inputs.empty() &&
           std::ranges::all_of(node.inputs, [&](ValueId v) { return common_[at(v)]; });
  }

  void note(const Node& node) {
    const int stage = stage_of_block(node.block);
    for (const ValueId v : node.inputs) {
      used_until_[at(v)] = std::max(used_until_[at(v)], stage);
      if (const int p = graph_.value(v).parameter; p >= 0) users_[p].insert(stages_.map.rank_of(stage));
    }
    for (const ValueId v : node.outputs) {
      made_in_[at(v)] = stage;
      common_[at(v)] = is_common(node);
    }
  }

  /// Tied embeddings are used by the first and the last rank, which are neighbours on the ring of ranks.
  void mark_parameters() {
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      Parameter& parameter = graph_.parameters[p];
      const std::set<int>& ranks = users_[static_cast<int>(p)];
      const bool by_ends =
          ranks.size() == 2 && *ranks.begin() == 0 && *ranks.rbegin() == stages_.map.ranks - 1;
      ASSERT(ranks.size() < 2 || by_ends, "{} is used by ranks {} of the pipeline", parameter.name,
             fmt::join(ranks, ", "));
      parameter.elsewhere = !ranks.contains(rank_);
      if (by_ends && !parameter.elsewhere) parameter.other_rank = rank_ == 0 ? *ranks.rbegin() : 0;
    }
  }

  /// Values of activations that go from stage boundary - 1 to stage boundary, in one order on both sides. The
  /// last is the residual stream. A second one goes beside it, since a stream receives one message at a time.
  std::vector<ValueId> crossing(int boundary) const {
    std::vector<ValueId> values;
    for (std::size_t v = 0; v < made_in_.size(); ++v)
      if (made_in_[v] != nowhere && made_in_[v] < boundary && used_until_[v] >= boundary && !common_[v])
        values.push_back(static_cast<ValueId>(v));
    ASSERT(values.size() <= 2, "{} values go to stage {}", values.size(), boundary);
    return values;
  }

  bool sent(int boundary) const {
    return boundary > 0 && boundary < stages_.map.stages() &&
           stages_.map.rank_of(boundary - 1) != stages_.map.rank_of(boundary);
  }

  void keep(int stage, const std::vector<Node>& nodes) {
    const auto [first, end] = stages_.blocks(stage);
    if (sent(stage)) received_.clear();
    if (sent(stage))
      for (const ValueId v : crossing(stage)) receive(v, stage, first);
    keep_common(nodes, first, end);
    for (const Node& node : nodes) {
      if (node.block < first || node.block >= end || is_common(node)) continue;
      Node& kept = graph_.nodes.emplace_back(node);
      for (ValueId& v : kept.inputs) v = stands_for(v);
      kept_.insert(node.outputs.begin(), node.outputs.end());
    }
    if (sent(stage + 1))
      for (const ValueId v : crossing(stage + 1)) send(v, stage + 1, end - 1);
  }

  /// What these blocks read that each rank makes for itself, once.
  void keep_common(const std::vector<Node>& nodes, int first, int end) {
    std::set<ValueId> read;
    std::vector<Node> kept;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const bool needed = std::ranges::any_of(node->outputs, [&](ValueId v) { return read.contains(v); });
      const bool own = node->block >= first && node->block < end;
      if (is_common(*node) ? !(own || needed) || made_.contains(node->outputs[0]) : !own) continue;
      read.insert(node->inputs.begin(), node->inputs.end());
      if (!is_common(*node)) continue;
      made_.insert(node->outputs[0]);
      kept.push_back(*node);
      kept.back().block = first;
    }
    std::move(kept.rbegin(), kept.rend(), std::back_inserter(graph_.nodes));
  }

  ValueId stands_for(ValueId v) const {
    const auto it = received_.find(v);
    return it == received_.end() ? v : it->second;
  }

  /// v: the value that is sent; output: what stands for it, or for its gradient, on this side.
  template <class Record>
  void add_message(ValueId v, std::vector<ValueId> inputs, ValueId output, int boundary, int peer_stage,
                   int block) {
    const auto bits = [&](const std::vector<AxisSet>& over) {
      return over.empty() ? std::int64_t{0} : std::int64_t{over[at(v)].bits()};
    };
    const Record message{{boundary, stages_.map.rank_of(peer_stage),
                          MessageMap(stages_.map).onward({boundary, false, 0}), trained_[at(v)],
                          bits(spread_.split_over), bits(spread_.partial_over),
                          v != crossing(boundary).back()}};
    graph_.nodes.push_back({std::string(Record::op),
                            graph_.value(v).name,
                            std::move(inputs),
                            {output},
                            attributes_of(message),
                            block,
                            ""});
  }

  ValueId add_like(ValueId v, const char* suffix) {
    model::Value like = graph_.value(v);
    like.name += suffix;
    return graph_.add(std::move(like));
  }

  void receive(ValueId v, int boundary, int block) {
    const ValueId to = received_[v] = add_like(v, ".received");
    add_message<FromStage>(v, {}, to, boundary, boundary - 1, block);
  }

  void send(ValueId v, int boundary, int block) {
    add_message<ToStage>(v, {stands_for(v)}, add_like(v, ".sent"), boundary, boundary, block);
  }

  /// Activations of other stages, for which tensors would be made in each micro-batch, and scales.
  void drop_unused_values() {
    std::vector<bool> used(graph_.values.size(), false);
    for (const Node& node : graph_.nodes)
      for (const auto* operands : {&node.inputs, &node.outputs})
        for (const ValueId v : *operands) used[at(v)] = true;
    std::vector<ValueId> number(graph_.values.size(), -1);
    std::vector<model::Value> values;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Role role = graph_.values[v].role;
      if (!used[v] && (role == Role::activation || role == Role::state)) continue;
      number[v] = static_cast<ValueId>(values.size());
      values.push_back(std::move(graph_.values[v]));
    }
    graph_.values = std::move(values);
    for (Node& node : graph_.nodes) {
      for (ValueId& v : node.inputs) v = number[at(v)];
      for (ValueId& v : node.outputs) v = number[at(v)];
    }
    for (Parameter& p : graph_.parameters) {
      p.value = number[at(p.value)];
      if (p.coded()) p.scales = number[at(p.scales)];
      if (p.form.any()) p.statistics = number[at(p.statistics)];
    }
    for (ValueId* of_head : graph_.of_head())
      if (*of_head >= 0) *of_head = number[at(*of_head)];
    for (auto* of_layers : {&graph_.experts.losses, &graph_.experts.sums, &graph_.experts.overflows})
      for (ValueId& v : *of_layers) v = number[at(v)];
  }

  Graph& graph_;
  const Stages& stages_;
  int rank_;
  const Spreading& spread_;
  std::vector<bool> trained_;            ///< by value
  std::vector<int> made_in_;             ///< by value: the stage that makes it
  std::vector<int> used_until_;          ///< by value: the last stage that reads it
  std::vector<bool> common_;             ///< by value: every rank has it, or makes it from what it has
  std::map<int, std::set<int>> users_;   ///< by parameter: ranks of the pipeline
  std::map<ValueId, ValueId> received_;  ///< in the stage at hand: what stands for values of stages before it
  std::set<ValueId> made_;               ///< of those that every rank makes: what this one has made
  std::set<ValueId> kept_;               ///< outputs of nodes of this rank's stages
};

/// gradient: whether it is one.
MessageId id_of(const Op& op, std::int64_t boundary, bool gradient) {
  return {static_cast<int>(boundary), gradient, op.action.micro};
}

Op release_of(const Op& send) {
  return {.type = std::string(Release::op),
          .name = send.name,
          .inputs = send.inputs,
          .action = {ActionKind::release, send.action.part, send.action.micro}};
}

}  // namespace

std::vector<double> block_costs(const Graph& graph, const Recompute& recompute, Target target) {
  Program base;
  base.target = target;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
    base.add({.name = name, .dtype = dtype, .shape = shape, .persistent = true});
  };
  add("scalars", DType::u8, {1});
  for (const model::Value& v : graph.values)
    if (v.role == Role::input)
      add(input_name(v.name, 0), v.dtype, v.shape);
    else if (v.role == Role::state)
      add(v.name, v.dtype, v.shape);
  ExpandOptions options;
  options.turns.push_back({TurnKind::backward, 0, 0});
  options.recompute = recompute;
  Expanded step = expand(std::move(base), graph, options);
  drop_dead_ops(step.program, step.results);
  std::vector<double> costs(graph.blocks.size(), 0);
  for (const Op& op : step.program.ops)
    if (is_compute(op.action.kind)) costs[at(op.action.part)] += op.flops;
  return costs;
}

std::vector<double> block_weights(const Graph& graph) {
  std::vector<double> weights(graph.blocks.size(), 0);
  for (const Node& node : graph.nodes)
    for (const ValueId v : node.inputs)
      if (const model::Value& value = graph.value(v); value.role == Role::parameter)
        weights[at(node.block)] += static_cast<double>(elements(value.shape) * size_of(value.dtype));
  return weights;
}

std::vector<int> cut_evenly(const std::vector<double>& costs, int stages) {
  const std::size_t blocks = costs.size();
  ASSERT(at(stages) <= blocks, "{} blocks do not make {} stages", blocks, stages);
  std::vector<double> sums(blocks + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  // Room for the rounding of sums; then as even as can be: the least sum of squares.
  const double most = least_cost(sums, stages) * (1 + 1e-9);
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> squares(at(stages) + 1, std::vector<double>(blocks + 1, never));
  std::vector<std::vector<int>> from(at(stages) + 1, std::vector<int>(blocks + 1, 0));
  squares[0][0] = 0;
  for (std::size_t s = 1; s <= at(stages); ++s)
    for (std::size_t end = s; end <= blocks; ++end)
      for (std::size_t begin = end; begin-- > s - 1;) {
        const double cost = sums[end] - sums[begin];
        if (cost > most) break;  // and so are longer ones
        if (squares[s - 1][begin] + cost * cost > squares[s][end]) continue;
        squares[s][end] = squares[s - 1][begin] + cost * cost;
        from[s][end] = static_cast<int>(begin);
      }
  std::vector<int> begins(at(stages) + 1, static_cast<int>(blocks));
  for (std::size_t s = at(stages); s > 0; --s) begins[s - 1] = from[s][at(begins[s])];
  return begins;
}

std::vector<int> cut_by_layers(const std::vector<int>& layers, int blocks) {
  std::vector<int> begins{0};
  for (const int count : layers) begins.push_back(begins.back() + count + (begins.size() == 1 ? 1 : 0));
  ASSERT(begins.back() == blocks - 1, "{} layers are not those of {} blocks", begins.back() - 1, blocks);
  begins.back() = blocks;
  return begins;
}

void keep_stages(Graph& graph, const Stages& stages, const Coordinate& at, const Spreading& spread) {
  Cutter(graph, stages, at, spread).run();
}

std::vector<std::size_t> place_messages(Program& program, const std::vector<std::size_t>& turn_begins,
                                        const StageMap& map, int rank, const MessagePlan& plan) {
  // By turn: receives that begin before it, its other ops, and what ends behind it.
  std::vector<std::vector<Op>> own(turn_begins.size()), ended(turn_begins.size());
  std::vector<std::vector<std::pair<int, Op>>> begun(turn_begins.size());  // with their numbers
  std::size_t turn = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    while (turn + 1 < turn_begins.size() && turn_begins[turn + 1] <= i) ++turn;
    Op& op = program.ops[i];
    if (op.comm.kind == CommKind::recv) {
      const std::int64_t boundary = record_of<Recv>(op.attributes).boundary;
      const bool gradient = map.rank_of(static_cast<int>(boundary)) != rank;
      const MessageId id = id_of(op, boundary, gradient);
      begun[at(plan.begins.at(id))].emplace_back(plan.number.at(id), std::move(op));
      continue;
    }
    if (op.comm.kind == CommKind::send) {
      const std::int64_t boundary = record_of<Send>(op.attributes).boundary;
      const bool gradient = map.rank_of(static_cast<int>(boundary)) == rank;
      ended[at(plan.received.at(id_of(op, boundary, gradient)))].push_back(release_of(op));
    }
    own[turn].push_back(std::move(op));
  }
  program.ops.clear();
  std::vector<std::size_t> begins;
  for (std::size_t t = 0; t < turn_begins.size(); ++t) {
    begins.push_back(program.ops.size());
    std::ranges::stable_sort(begun[t], {}, [](const auto& receive) { return receive.first; });
    for (auto& [number, receive] : begun[t]) program.ops.push_back(std::move(receive));
    for (auto* list : {&own[t], &ended[t]}) std::ranges::move(*list, std::back_inserter(program.ops));
  }
  return begins;
}

}  // namespace ztrain::program
