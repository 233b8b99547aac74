#include "program/passes/join_products.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/shape.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/linear/record.hpp"
#include "kernels/rope/record.hpp"
#include "layout/layout.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

using model::Graph;
using model::Node;
using model::Parameter;
using model::Value;
using model::ValueId;

/// "layer.q_proj", "layer.k_proj" -> "layer.q_proj+k_proj".
std::string both(const std::string& name, const std::string& other) {
  return fmt::format("{}+{}", name, other.substr(other.rfind('.') + 1));
}

class Joiner {
 public:
  explicit Joiner(Graph& graph) : graph_(graph) {
    made_by_.assign(graph.values.size(), -1);
    reads_.assign(graph.values.size(), 0);
    gone_.assign(graph.nodes.size(), false);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId out : graph.nodes[n].outputs) made_by_[at(out)] = static_cast<int>(n);
      for (const ValueId in : graph.nodes[n].inputs) ++reads_[at(in)];
    }
  }

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op == Attention::op && !record_of<Attention>(node.attributes).joined) join_attention(n);
      if (op_type(node.op).joins_inputs && node.inputs.size() == 2) join_pair(n);
    }
    std::vector<Node> nodes;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!gone_[n]) nodes.push_back(std::move(graph_.nodes[n]));
    graph_.nodes = std::move(nodes);
  }

 private:
  /// The node of this op that makes a value which only one other node reads, or -1.
  int maker(ValueId value, std::string_view op) const {
    const int n = made_by_[at(value)];
    return n >= 0 && reads_[at(value)] == 1 && graph_.nodes[at(n)].op == op ? n : -1;
  }

  /// Of this layer alone: the gradients of joined weights are all written, or all added to.
  bool is_parameter(const Node& layer, std::size_t input) const {
    const ValueId v = layer.inputs[input];
    return graph_.value(v).parameter >= 0 && reads_[at(v)] == 1;
  }

  /// Whether what is laid out behind the parameter follows without a gap, on every rank that has a part of
  /// it.
  static bool fills_quanta(const Parameter& p) {
    for (int index = 0; index < p.slice.parts; ++index)
      if (elements(p.slice.part_of(p.shape, index)) % quantum != 0) return false;
    return true;
  }

  /// Whether one operand of the layers would lie in one piece.
  bool neighbours(const std::vector<int>& layers, std::size_t input) const {
    for (std::size_t i = Linear::weight; i < layers.size(); ++i) {
      const ValueId before = graph_.nodes[at(layers[i - 1])].inputs[input];
      const ValueId here = graph_.nodes[at(layers[i])].inputs[input];
      const Parameter &a = graph_.parameter_of(before), &b = graph_.parameter_of(here);
      if (&b != &a + 1 || a.unit != b.unit || a.trainable != b.trainable || a.joined >= 0 || b.joined >= 0 ||
          a.state_over != b.state_over || a.computed.end > 0 || b.computed.end > 0 || !fills_quanta(a))
        return false;
    }
    return true;
  }

  bool joinable(const std::vector<int>& layers) const {
    if (std::ranges::count(layers, -1) > 0) return false;
    const Node& first = graph_.nodes[at(layers[0])];
    for (const int n : layers) {
      const Node& layer = graph_.nodes[at(n)];
      if (layer.inputs[Linear::x] != first.inputs[Linear::x] || layer.inputs.size() != first.inputs.size() ||
          layer.block != first.block || layer.piece != first.piece ||
          record_of<Linear>(layer.attributes).parts > 1)
        return false;
      for (std::size_t i = Linear::weight; i < layer.inputs.size(); ++i)
        if (!is_parameter(layer, i)) return false;
    }
    for (std::size_t i = Linear::weight; i < first.inputs.size(); ++i)
      if (!neighbours(layers, i)) return false;
    return true;
  }

  /// Puts one layer in the place of the first of these.
  ValueId join(const std::vector<int>& layers) {
    Node& first = graph_.nodes[at(layers[0])];
    Node joined = first;
    joined.inputs.resize(Linear::weight);
    Value out = graph_.value(first.outputs[Linear::y]);
    out.shape[1] = 0;
    for (const int n : layers) {
      const Node& layer = graph_.nodes[at(n)];
      out.shape[1] += graph_.value(layer.outputs[Linear::y]).shape[1];
      if (n != layers[0]) joined.name = both(joined.name, layer.name);
      gone_[at(n)] = true;
    }
    for (std::size_t input = Linear::weight; input < first.inputs.size(); ++input)
      for (const int n : layers) joined.inputs.push_back(take(layers, n, input));
    edit<Linear>(joined.attributes, [&](Linear& l) { l.parts = std::ssize(layers); });
    out.name = joined.name;
    joined.outputs = {graph_.add(std::move(out))};
    first = std::move(joined);
    gone_[at(layers[0])] = false;
    return first.outputs[Linear::y];
  }

  ValueId take(const std::vector<int>& layers, int layer, std::size_t input) {
    const ValueId leader = graph_.nodes[at(layers[0])].inputs[input];
    const ValueId v = graph_.nodes[at(layer)].inputs[input];
    graph_.parameter_of(v).joined = graph_.value(leader).parameter;
    return v;
  }

  void join_attention(std::size_t n) {
    const Node attention = graph_.nodes[n];
    const int q_rope = maker(attention.inputs[Attention::q], Rope::op),
              k_rope = maker(attention.inputs[Attention::k], Rope::op);
    const bool turns = q_rope >= 0 && k_rope >= 0;
    const Node turned = turns ? graph_.nodes[at(q_rope)] : attention,
               other = turns ? graph_.nodes[at(k_rope)] : attention;
    if (turns &&
        (turned.inputs[Rope::table] != other.inputs[Rope::table] || turned.attributes != other.attributes))
      return;
    const std::vector<int> layers{
        maker(turns ? turned.inputs[Rope::x] : attention.inputs[Attention::q], Linear::op),
        maker(turns ? other.inputs[Rope::x] : attention.inputs[Attention::k], Linear::op),
        maker(attention.inputs[Attention::v], Linear::op)};
    if (!joinable(layers)) return;
    const ValueId qkv = join(layers);
    graph_.nodes[n].inputs = {qkv};
    const auto others =
        attention.inputs.begin() + record_of<Attention>(attention.attributes).document_start();
    graph_.nodes[n].inputs.insert(graph_.nodes[n].inputs.end(), others, attention.inputs.end());
    edit<Attention>(graph_.nodes[n].attributes, [](Attention& a) { a.joined = true; });
    if (!turns) return;
    Value out = graph_.value(qkv);
    out.name = both(turned.name, other.name);
    // The later of the two: nodes stay in order.
    Node& rope = graph_.nodes[at(std::max(q_rope, k_rope))];
    gone_[at(std::min(q_rope, k_rope))] = true;
    rope.name = out.name;
    rope.inputs = {qkv, turned.inputs[Rope::table]};
    rope.attributes = turned.attributes;
    edit<Rope>(rope.attributes, [&](Rope& r) {
      const auto a = record_of<Attention>(attention.attributes);
      r.heads = a.heads + a.kv_heads;
    });
    rope.outputs = {graph_.add(std::move(out))};
    graph_.nodes[n].inputs[Attention::q] = rope.outputs[Rope::y];
  }

  void join_pair(std::size_t n) {
    const Node& node = graph_.nodes[n];
    const std::vector<int> layers{maker(node.inputs[0], Linear::op), maker(node.inputs[1], Linear::op)};
    if (!joinable(layers)) return;
    const ValueId joined = join(layers);
    graph_.nodes[n].inputs = {joined};
  }

  Graph& graph_;
  std::vector<int> made_by_;  ///< node by value, -1: none; of the graph as it came
  std::vector<int> reads_;    ///< by value, likewise
  std::vector<bool> gone_;    ///< by node
};

}  // namespace

void join_products(Graph& graph) {
  Joiner(graph).run();
}

}  // namespace ztrain::program
