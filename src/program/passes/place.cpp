#include "program/passes/place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/embedding/record.hpp"
#include "program/ir/placement.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

using model::Graph;
using model::Node;
using model::Rows;
using model::Value;
using model::ValueId;

constexpr int impossible = std::numeric_limits<int>::max() / 1000;
constexpr int communicates = 10;

/// An op between two placements of one value. Its adjoint is the adjoint of its row in the op table.
struct Conversion {
  Placement from, to;
  std::string_view op;
  const char* suffix;  ///< of its result's name
  int cost;
};
constexpr Conversion conversions[] = {
    {invariant, replicated, CopyToAxis::op, "copied", communicates},
    {partial, invariant, ReduceFromAxis::op, "reduced", communicates},
    {partial, split(0), ScatterToAxis::op, "scattered", communicates},
    {split(0), replicated, GatherFromAxis::op, "gathered", communicates},
    {split(0), split(1), TokensToColumns::op, "columns", communicates},
    {split(1), split(0), ColumnsToTokens::op, "tokens", communicates},
};

/// What the ranks of an axis do with the tokens of the graph: dealt, each has a graph of its own, and shapes
/// are this rank's; cut, each takes its part of them; shared, each has them all.
/// cut_by_heads: cut, but attention is to some heads of all tokens.
enum class Tokens : std::uint8_t { dealt, cut, cut_by_heads, shared };

/// One axis, or several that are treated alike.
class Placer {
 public:
  /// plan: of the tensor axis, or null.
  Placer(Graph& graph, AxisSet axes, const Coordinate& at, Tokens tokens,
         const model::TensorPlan* plan = nullptr)
      : graph_(graph),
        axes_(axes),
        ranks_(at.mesh().size(axes)),
        index_(at.index_in(axes)),
        tokens_(tokens),
        plan_(plan),
        at_(graph.values.size(), invariant),
        parts_(graph.values.size()),
        trained_(graph.values.size(), false),
        stands_for_(graph.values.size()),
        used_as_(graph.parameters.size()) {
    for (const Node& node : graph.nodes) {
      ways_.push_back(placings_of(node, axes));
      if ((node.op == Attention::op || node.op == RingAttention::op) && tokens == Tokens::cut_by_heads)
        std::erase_if(ways_.back(), [](const Placing& way) { return way.inputs[Attention::q] != split(1); });
      // Tokens are exchanged before they become codes, whose gradient would have to be exchanged by itself.
      if (op_type(node.op).straight_through && tokens == Tokens::cut_by_heads)
        std::erase_if(ways_.back(), [](const Placing& way) { return way.inputs[0] == split(1); });
      // Of a table that is whole the residual stream is the same everywhere from the beginning.
      if (node.op == Embedding::op && plan)
        std::erase_if(ways_.back(),
                      [](const Placing& way) { return way.outputs[Embedding::y] == replicated; });
    }
    for (const Value& v : graph.values) logical_.push_back(v.shape);
    for (std::size_t v = 0; v < stands_for_.size(); ++v) stands_for_[v] = static_cast<ValueId>(v);
    place_inputs();
    if (plan_) place_parameters();
  }

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (std::size_t n = 0; n < nodes.size(); ++n) place_node(std::move(nodes[n]), ways_[n]);
  }

  /// Whether ranks' gradients of a parameter are added up: each uses all of it, or rows, in its own way.
  bool sums(std::size_t parameter) const {
    return used_as_[parameter] == replicated || graph_.parameters[parameter].computed.end > 0;
  }

  /// By value of the graph.
  const std::vector<Placement>& placements() const { return at_; }

 private:
  /// A value as something else, in a block: what is converted there serves all its readers. An input's
  /// conversion serves every block.
  using Use = std::tuple<ValueId, int, Placement::Kind>;
  Use use_of(ValueId v, Placement to, int block) const {
    return {v, graph_.value(v).role == model::Role::input ? -1 : block, to.kind};
  }
  /// Tokens become columns for attention by heads alone.
  bool converts(const Conversion& c) const {
    const bool exchanges = c.from.kind == Placement::Kind::split && c.to.kind == Placement::Kind::split;
    return tokens_ != Tokens::dealt && (!exchanges || tokens_ == Tokens::cut_by_heads);
  }
  bool is_parameter(ValueId v) const { return graph_.value(v).parameter >= 0; }
  void place_inputs() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (tokens_ != Tokens::shared && value.role == model::Role::input) {
        const auto id = static_cast<ValueId>(v);
        put(id, split(0), tokens_ == Tokens::dealt ? std::vector<Rows>() : parts_of(id, 0));
      }
      if (value.role == model::Role::state) at_[v] = replicated;
      trained_[v] =
          value.role == model::Role::parameter && !graph_.parameter_of(static_cast<ValueId>(v)).constant;
    }
    for (const model::Parameter& p : graph_.parameters)  // of experts, which are divided already
      if (!p.slice.whole() && axes_.without(p.slice.axes).empty()) at_[at(p.value)] = split(p.slice.dim);
  }

  void place_parameters() {
    for (model::Parameter& p : graph_.parameters) {
      const model::ParameterCut* cut = plan_->find(p.name);
      if (!cut || !p.slice.whole()) continue;
      if (!cut->taken.empty()) {
        p.computed = cut->taken[at(index_)];
        put(p.value, split(0), cut->taken);
      }
      if (cut->slice.whole()) continue;
      p.slice = cut->slice;
      const std::int64_t size = p.shape[at(p.slice.dim)];
      std::vector<Rows> parts;
      for (int r = 0; r < ranks_; ++r) parts.push_back({p.slice.begin(size, r), p.slice.begin(size, r + 1)});
      // Rows have scales of their own.
      if (p.coded() && p.slice.dim == 0 && logical_[at(p.scales)][0] > 1) put(p.scales, split(0), parts);
      put(p.value, split(p.slice.dim), std::move(parts));
    }
  }

  /// What the value is, and of a split one which part each rank has.
  void put(ValueId v, Placement where, std::vector<Rows> parts) {
    at_[at(v)] = where;
    if (where.kind != Placement::Kind::split || tokens_ == Tokens::dealt) return;
    const Rows own = parts[at(index_)];
    graph_.value(v).shape = logical_[at(v)];
    graph_.value(v).shape[at(where.dim)] = own.end - own.begin;
    parts_[at(v)] = std::move(parts);
  }

  void place_node(Node node, const std::vector<Placing>& ways) {
    for (ValueId& in : node.inputs) in = stands_for_[at(in)];
    const Placing& way = best(node, ways);
    bool trained = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      node.inputs[i] = convert(node.inputs[i], way.inputs[i], node);
      trained = trained || trained_[at(node.inputs[i])];
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      trained_[at(node.outputs[i])] = trained && graph_.value(node.outputs[i]).dtype != DType::i32;
      put(node.outputs[i], way.outputs[i], parts_of_output(node, way, i));
    }
    if (tokens_ != Tokens::dealt) fit_to_part(node);
    const ValueId result = node.outputs[0];
    const bool looked_up = node.op == Embedding::op;
    graph_.nodes.push_back(std::move(node));
    // The residual stream begins here: what all that follows reads.
    if (plan_ && looked_up && at_[at(result)] == partial) {
      const Node made = graph_.nodes.back();
      stands_for_[at(result)] = convert(result, stream(), made);
    }
  }

  const Placing& best(const Node& node, const std::vector<Placing>& ways) const {
    const Placing* found = nullptr;
    int least = impossible;
    for (const Placing& way : ways) {
      int cost = 0;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        cost = std::min(impossible, cost + cost_of(node.inputs[i], way.inputs[i], node.block));
      if (cost < least) least = cost, found = &way;
    }
    if (found) return *found;
    std::string inputs;
    for (const ValueId in : node.inputs)
      inputs += fmt::format("{}{} is {}", inputs.empty() ? "" : ", ", graph_.value(in).name,
                            to_string(at_[at(in)]));
    fail("{} ({}) cannot be split over {}: {}", node.name, node.op, to_string(axes_), inputs);
  }

  int cost_of(ValueId v, Placement to, int block) const {
    const Placement from = at_[at(v)];
    const bool whole = is_parameter(v) && from == invariant;
    if (whole && used_as_[at(graph_.value(v).parameter)].value_or(to) != to) return impossible;  // note_use
    if (from == to) return 0;
    if (from == invariant && to == replicated && (is_parameter(v) || !trained_[at(v)])) return 0;
    if (is_parameter(v)) return impossible;
    if (made_.contains(use_of(v, to, block))) return 0;
    for (const Conversion& c : conversions)
      if (converts(c) && c.from == from && c.to == to) return c.cost + (leaves_stream(c) ? 1 : 0);
    if (by_two(from, to)) return 2 * communicates;
    return impossible;
  }

  /// Returns the placement of the residual stream on the tensor axis.
  Placement stream() const { return plan_->sequence_parallel ? split(0) : invariant; }

  /// Returns whether a sum gets another placement than the residual stream's. Such a conversion costs 1 more:
  /// if two ways communicate equally, the one that keeps the stream's placement is taken.
  bool leaves_stream(const Conversion& c) const { return plan_ && c.from == partial && c.to != stream(); }

  /// Returns whether a conversion takes two ops: a sum over the ranks, then replication.
  bool by_two(Placement from, Placement to) const { return plan_ && from == partial && to == replicated; }

  /// The value as `to`, by an op before `reader` where it takes one.
  ValueId convert(ValueId v, Placement to, const Node& reader) {
    const Placement from = at_[at(v)];
    if (is_parameter(v)) note_use(v, to);
    if (from == to) return v;
    if (from == invariant && to == replicated && (is_parameter(v) || !trained_[at(v)])) return v;
    const Use key = use_of(v, to, reader.block);
    if (const auto it = made_.find(key); it != made_.end()) return it->second;
    if (by_two(from, to)) return made_[key] = convert(convert(v, invariant, reader), to, reader);
    for (const Conversion& c : conversions)
      if (c.from == from && c.to == to) return made_[key] = emit(c, v, reader);
    ASSERT(false, "no op makes {} of {} that is {}", to_string(to), graph_.value(v).name, to_string(from));
  }

  /// Gradients of one parameter that are the same on every rank do not go with gradients that are to be
  /// summed.
  void note_use(ValueId v, Placement as) {
    auto& used = used_as_[at(graph_.value(v).parameter)];
    REQUIRE(
        !used || used == as,
        "{} is used as {} in one place and as {} in another: its gradient would be summed over {} in part",
        graph_.value(v).name, to_string(*used), to_string(as), to_string(axes_));
    used = as;
  }

  ValueId emit(const Conversion& c, ValueId from, const Node& reader) {
    Value made = graph_.value(from);
    made.name = fmt::format("{}.{}", made.name, c.suffix);
    made.shape = logical_[at(from)];
    const auto to = static_cast<ValueId>(graph_.values.size());
    Node node{std::string(c.op), made.name,   {from}, {to}, attributes_of(OverAxes{axes_.bits()}),
              reader.block,      reader.piece};
    graph_.values.push_back(std::move(made));
    at_.push_back(c.to);
    parts_.emplace_back();
    logical_.push_back(logical_[at(from)]);
    trained_.push_back(trained_[at(from)]);
    stands_for_.push_back(to);
    put(to, c.to, c.to.kind == Placement::Kind::split ? parts_of(from, c.to.dim) : std::vector<Rows>());
    graph_.nodes.push_back(std::move(node));
    return to;
  }

  /// Equal ones of tokens (dim 0) or columns.
  std::vector<Rows> parts_of(ValueId v, int dim) const {
    const std::int64_t rows = logical_[at(v)][at(dim)];
    REQUIRE(dim == 0 || rows % ranks_ == 0, "{} columns of {} do not divide into {} parts over {}", rows,
            graph_.value(v).name, ranks_, to_string(axes_));
    ASSERT(rows % ranks_ == 0, "a micro-batch of {} tokens is not padded for {} parts over {}", rows, ranks_,
           to_string(axes_));
    std::vector<Rows> parts;
    for (std::int64_t r = 0; r < ranks_; ++r) parts.push_back({r * rows / ranks_, (r + 1) * rows / ranks_});
    return parts;
  }

  /// The parts of a split output are those of an input, in the output's own elements.
  std::vector<Rows> parts_of_output(const Node& node, const Placing& way, std::size_t output) const {
    const Placement out = way.outputs[output];
    if (tokens_ == Tokens::dealt || out.kind != Placement::Kind::split) return {};
    const std::int64_t size = logical_[at(node.outputs[output])][at(out.dim)];
    if (output >= op_type(node.op).own_size_from) return std::vector<Rows>(at(ranks_), {0, size});
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (way.inputs[i].kind != Placement::Kind::split) continue;
      const std::int64_t of = logical_[at(in)][at(way.inputs[i].dim)];
      std::vector<Rows> parts = parts_[at(in)];
      for (Rows& part : parts) part = {part.begin * size / of, part.end * size / of};
      return parts;
    }
    ASSERT(false, "{} splits what none of its inputs is", node.name);
  }

  /// Attributes that speak of whole operands.
  void fit_to_part(Node& node) const {
    const auto fit = op_type(node.op).fit;
    if (!fit) return;
    PartOfNode part{{}, at_[at(node.outputs[0])], axes_, index_};
    for (const ValueId in : node.inputs)
      part.inputs.push_back({at_[at(in)], graph_.value(in).shape, logical_[at(in)], parts_[at(in)]});
    fit(node, part);
  }

  Graph& graph_;
  AxisSet axes_;
  int ranks_, index_;
  Tokens tokens_;
  const model::TensorPlan* plan_;
  std::vector<std::vector<Placing>> ways_;         ///< by node
  std::vector<Placement> at_;                      ///< by value
  std::vector<std::vector<Rows>> parts_;           ///< by split value: of its dim, by rank
  std::vector<Shape> logical_;                     ///< by value
  std::vector<bool> trained_;                      ///< by value: gradients may flow to it
  std::vector<ValueId> stands_for_;                ///< by value: what later nodes read in its place
  std::vector<std::optional<Placement>> used_as_;  ///< by parameter
  std::map<Use, ValueId> made_;                    ///< conversions
};

/// Keys and values stay where they are made, and go round the ranks that share a sequence; or, without axes,
/// are gathered, and those of all tokens are attended to by this rank's.
void attend_in_ring(Graph& graph, AxisSet axes) {
  for (Node& node : graph.nodes) {
    if (node.op != Attention::op) continue;
    RingAttention ring;
    static_cast<Attention&>(ring) = record_of<Attention>(node.attributes);
    ring.axes = axes.bits();
    node.op = RingAttention::op;
    node.attributes = attributes_of(ring);
  }
}

/// Adds the axes to those over which values are placed so.
void note(std::vector<AxisSet>& over, const Graph& graph, const std::vector<Placement>& placements,
          Placement wanted, AxisSet axes) {
  const std::size_t known = over.size();
  over.resize(placements.size());
  // A conversion's result is over the other axes what it is made of.
  for (const Node& node : graph.nodes)
    if (known > 0 && at(node.outputs[0]) >= known) over[at(node.outputs[0])] = over[at(node.inputs[0])];
  for (std::size_t v = 0; v < placements.size(); ++v)
    if (placements[v] == wanted) over[v] = over[v] | axes;
}

bool cuts_layers(const Coordinate& at, const model::TensorPlan& plan) {
  return at.mesh()[Axis::tensor] > 1 && !plan.parameters.empty();
}

}  // namespace

TokenOrder token_order(const MeshShape& mesh, model::ContextMethod context, int multiple) {
  const int ranks = mesh.size(context_axes);
  if (context == model::ContextMethod::heads) return {ranks, mesh[Axis::ring], multiple};
  return {ranks, ranks, multiple};
}

Placed place(model::Graph& graph, const Coordinate& at, const model::TensorPlan& plan,
             model::ContextMethod context) {
  const bool cut = at.mesh()[Axis::context] > 1;
  const bool around = at.mesh()[Axis::ring] > 1;
  ASSERT(!around || context == model::ContextMethod::heads, "only ulysses has a ring around it");
  AxisSet dealt = sequence_axes;
  for (const Axis axis : {Axis::ring, Axis::context})
    if (at.mesh()[axis] == 1) dealt = dealt | axis;
  Placed placed;
  placed.summed_over.resize(graph.parameters.size());
  const auto run = [&](Placer placer, AxisSet axes) {
    placer.run();
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      if (placer.sums(p) && (axes != Axis::tensor || graph.parameters[p].trainable))
        placed.summed_over[p] = placed.summed_over[p] | axes;
    note(placed.split_over, graph, placer.placements(), split(0), axes);
    note(placed.partial_over, graph, placer.placements(), partial, axes);
  };
  const AxisSet routed_over = at.mesh()[Axis::expert] > 1 ? Axis::expert : AxisSet();
  if (!routed_over.empty()) run(Placer(graph, routed_over, at, Tokens::dealt), routed_over);
  run(Placer(graph, sequence_axes.without(routed_over), at, Tokens::dealt), dealt.without(routed_over));
  if (around) {
    attend_in_ring(graph, Axis::ring);
    run(Placer(graph, Axis::ring, at, Tokens::cut), Axis::ring);
  }
  if (cut && context != model::ContextMethod::heads)
    attend_in_ring(graph, context == model::ContextMethod::ring ? AxisSet(Axis::context) : AxisSet());
  const Tokens tokens = context == model::ContextMethod::heads ? Tokens::cut_by_heads : Tokens::cut;
  if (cut) run(Placer(graph, Axis::context, at, tokens), Axis::context);
  if (cuts_layers(at, plan)) run(Placer(graph, Axis::tensor, at, Tokens::shared, &plan), Axis::tensor);
  for (const ValueId v : graph.experts.sums)
    graph.experts.sums_over =
        graph.experts.sums_over | placed.split_over[ztrain::at(v)] | placed.partial_over[ztrain::at(v)];
  return placed;
}

void place_over_tensor(model::Graph& graph, const Coordinate& at, const model::TensorPlan& plan) {
  if (cuts_layers(at, plan)) Placer(graph, Axis::tensor, at, Tokens::shared, &plan).run();
}

}  // namespace ztrain::program
