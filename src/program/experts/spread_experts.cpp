#include "program/experts/spread_experts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/dispatch/record.hpp"
#include "kernels/experts/record.hpp"
#include "kernels/grouped/record.hpp"

namespace ztrain::program {
namespace {

using model::Graph;
using model::Node;
using model::ValueId;

class ExpertSpreader {
 public:
  ExpertSpreader(Graph& graph, const MeshShape& mesh, AxisSet axes, double capacity)
      : graph_(graph),
        axes_(axes),
        capacity_(capacity),
        members_(mesh.size(axes)),
        token_parts_(mesh.size(context_axes) * mesh[Axis::tensor]) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) visit(std::move(node));
  }

 private:
  /// The values of one layer's routing, and how many rows its experts may get.
  struct Layer {
    ValueId slots = -1, offsets = -1;
    std::int64_t own_experts = 0;  ///< experts of a rank
    ValueId routes = -1;
    SlotsOfRows say{};
    std::int64_t rows = 0;       ///< rows that this rank's experts may get
    std::int64_t even_rows = 0;  ///< rows that they get if tokens choose evenly
  };

  void visit(Node node) {
    if (node.op == SortByExpert::op) {
      layer_ = {node.outputs[SortByExpert::slots], node.outputs[SortByExpert::offsets],
                record_of<SortByExpert>(node.attributes).count / members_};
      edit<SortByExpert>(node.attributes,
                         [&](SortByExpert& sort) { sort.own_tokens = axes_.contains(Axis::tensor); });
    } else if (node.op == GroupedLinear::op) {
      divide(node);
      edit<GroupedLinear>(node.attributes,
                          [&](GroupedLinear& linear) { linear.even_rows = layer_.even_rows; });
    }
    if (node.op == Combine::op) node.inputs[Combine::rows] = come_back(node, node.inputs[Combine::rows]);
    bool moved = false;
    for (ValueId& in : node.inputs)
      if (const auto it = moved_.find(in); it != moved_.end()) in = it->second, moved = true;
    if (moved)
      for (const ValueId out : node.outputs) {
        graph_.value(out).shape[0] = layer_.rows;
        moved_[out] = out;
      }
    const bool leaves = node.op == Permute::op;
    graph_.nodes.push_back(std::move(node));
    if (leaves) go(Node(graph_.nodes.back()));
  }

  template <class Record>
  ValueId emit(const Record& record, const Node& beside, const char* suffix, std::vector<ValueId> inputs,
               DType type, Shape shape) {
    const std::string name = beside.name + suffix;
    const ValueId made = graph_.add({.name = name, .dtype = type, .shape = std::move(shape)});
    graph_.nodes.push_back({std::string(Record::op),
                            name,
                            std::move(inputs),
                            {made},
                            attributes_of(record),
                            beside.block,
                            beside.piece});
    return made;
  }

  /// Adds the nodes that bring rows to experts. All experts that a token goes to may be those of one rank, if
  /// the rank has so many.
  void go(const Node& permute) {
    const ValueId rows = permute.outputs[Permute::rows];
    const Shape shape = graph_.value(rows).shape, slots = graph_.value(layer_.slots).shape;
    ASSERT(slots[0] % token_parts_ == 0, "{} tokens do not divide into {} parts", slots[0], token_parts_);
    const std::int64_t tokens = slots[0] / token_parts_,
                       all = tokens * std::min(slots[1], layer_.own_experts);
    layer_.even_rows = tokens * slots[1];
    const double share = static_cast<double>(layer_.even_rows) / members_;
    const auto most = capacity_ > 0 ? static_cast<std::int64_t>(std::ceil(capacity_ * share)) : all;
    layer_.say = {std::min(all, most), axes_.bits()};
    layer_.rows = members_ * layer_.say.slot;
    layer_.routes = emit(RouteRows{layer_.say}, permute, ".routes", {layer_.offsets}, DType::i32,
                         {route_elements(members_, layer_.own_experts)});
    const ValueId own_offsets = graph_.add(
        {.name = permute.name + ".offsets", .dtype = DType::i32, .shape = {layer_.own_experts + 1}});
    const ValueId overflow =
        graph_.add({.name = permute.name + ".overflow", .dtype = DType::f64, .shape = {1}});
    for (const ValueId out : {own_offsets, overflow}) graph_.nodes.back().outputs.push_back(out);
    if (layer_.say.slot < all) graph_.experts.overflows.push_back(overflow);
    moved_[layer_.offsets] = own_offsets;
    moved_[rows] = emit(ToExperts{layer_.say}, permute, ".to_experts", {rows, layer_.routes},
                        graph_.value(rows).dtype, {layer_.rows, shape[1]});
  }

  ValueId come_back(const Node& combine, ValueId rows) {
    const Shape slots = graph_.value(layer_.slots).shape, shape = graph_.value(rows).shape;
    return emit(FromExperts{layer_.say}, combine, ".from_experts", {layer_.slots, rows, layer_.routes},
                graph_.value(rows).dtype, {slots[0] * slots[1], shape[1]});
  }

  /// Slices a layer's weights and biases: this rank has those of its experts.
  void divide(const Node& node) {
    for (std::size_t i = GroupedLinear::weight; i < node.inputs.size(); ++i) {
      model::Parameter& p = graph_.parameter_of(node.inputs[i]);
      REQUIRE(p.shape[0] % members_ == 0, "{}: {} experts do not divide among {} ranks over {}", p.name,
              p.shape[0], members_, to_string(axes_));
      p.slice = {0, members_, {}, axes_};
      p.state_over = p.state_over.without(axes_);
      graph_.value(p.value).shape[0] = p.shape[0] / members_;
    }
  }

  Graph& graph_;
  AxisSet axes_;
  double capacity_;
  int members_;
  std::int64_t token_parts_;  ///< parts into which the tokens of a micro-batch are cut
  Layer layer_{};             ///< the last one met
  std::map<ValueId, ValueId> moved_{};
};

}  // namespace

void spread_experts(Graph& graph, const Coordinate& at, double capacity) {
  const MeshShape& mesh = at.mesh();
  if (mesh[Axis::expert] == 1) return;
  AxisSet axes = Axis::expert;
  if (mesh[Axis::tensor] > 1) axes = axes | Axis::tensor;
  ExpertSpreader(graph, mesh, axes, capacity).run();
}

}  // namespace ztrain::program
