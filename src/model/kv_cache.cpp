#include "model/kv_cache.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/embedding/record.hpp"

namespace ztrain::model {
namespace {

/// Appends the rows of `rows` to a new cache.
Node append(Graph& graph, const Node& attention, const char* suffix, ValueId rows, ValueId begin,
            std::int64_t capacity) {
  const Value& like = graph.value(rows);
  const std::string name = attention.name + suffix;
  const std::int64_t heads = record_of<Attention>(attention.attributes).kv_heads;
  const Shape shape{heads * capacity, like.shape[1] / heads};
  const ValueId cache = graph.add({name, like.dtype, shape, Role::state});
  return {std::string(CacheAppend::op),
          name,
          {rows, begin, cache},
          {cache},
          {},
          attention.block,
          attention.piece};
}

}  // namespace

void add_kv_cache(Graph& graph, std::int64_t capacity) {
  REQUIRE(capacity >= 1, "a cache of {} tokens holds nothing", capacity);
  const auto attends = [](const Node& node) { return node.op == Attention::op; };
  REQUIRE(std::ranges::any_of(graph.nodes, attends), "the model has no attention to give a cache to");
  const ValueId begin = graph.add({"cache_begin", DType::i32, {1}, Role::input});
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (attends(node)) {
      nodes.push_back(append(graph, node, ".k_cache", node.inputs[Attention::k], begin, capacity));
      nodes.push_back(append(graph, node, ".v_cache", node.inputs[Attention::v], begin, capacity));
      const ValueId k = nodes[nodes.size() - 2].outputs[0], v = nodes.back().outputs[0];
      node.op = AttentionCached::op;
      const auto sinks = static_cast<std::ptrdiff_t>(record_of<Attention>(node.attributes).sinks());
      std::vector<ValueId> inputs{node.inputs[Attention::q], k, v, begin};
      inputs.insert(inputs.end(), node.inputs.begin() + sinks, node.inputs.end());
      node.inputs = std::move(inputs);
      node.outputs.resize(1);
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

void keep_every_row(Graph& graph) {
  const auto is_selection = [](const Node& node) { return node.op == SelectRow::op; };
  const auto selection = std::ranges::find_if(graph.nodes, is_selection);
  REQUIRE(selection != graph.nodes.end(), "the model selects no token whose logits it gives");
  const ValueId all = selection->inputs[SelectRow::x], one = selection->outputs[SelectRow::y];
  const std::int64_t tokens = graph.value(all).shape[0];
  std::vector<bool> widened(graph.values.size(), false);
  widened[at(one)] = true;
  for (auto node = selection + 1; node != graph.nodes.end(); ++node) {
    const bool reads = std::ranges::any_of(node->inputs, [&](ValueId v) { return widened[at(v)]; });
    std::ranges::replace(node->inputs, one, all);
    if (!reads) continue;
    for (const ValueId v : node->outputs) {
      graph.value(v).shape[0] = tokens;
      widened[at(v)] = true;
    }
  }
  graph.nodes.erase(selection);
}

}  // namespace ztrain::model
