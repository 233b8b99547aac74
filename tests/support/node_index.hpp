#pragma once
// Nodes of a graph by their names, and graphs that are changed: one uses a layer twice, one scales and caps.

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/head/record.hpp"
#include "layout/mesh.hpp"
#include "model/graph.hpp"

namespace ztrain::test {

/// Throws Error when no node has this name.
inline std::size_t node_index(const model::Graph& graph, const std::string& name) {
  const auto node = std::ranges::find(graph.nodes, name, &model::Node::name);
  REQUIRE(node != graph.nodes.end(), "the model has no op named '{}'", name);
  return static_cast<std::size_t>(node - graph.nodes.begin());
}

/// Multiplies the output of the node of this name by the factor.
inline void scale_output(model::Graph& graph, const std::string& name, double factor) {
  const auto at = static_cast<std::ptrdiff_t>(node_index(graph, name));
  model::Node scale = graph.nodes[static_cast<std::size_t>(at)];
  const model::ValueId from = scale.outputs[0];
  model::Value output = graph.value(from);
  output.name = scale.name = name + ".scale";
  scale.op = Scale::op;
  scale.attributes = attributes_of(Scale{factor});
  scale.inputs = {from};
  scale.outputs = {graph.add(std::move(output))};
  for (auto node = graph.nodes.begin() + at + 1; node != graph.nodes.end(); ++node)
    std::ranges::replace(node->inputs, from, scale.outputs[0]);
  graph.nodes.insert(graph.nodes.begin() + at + 1, std::move(scale));
}

/// The head caps its logits so that most are bent, and the embedding and a branch beside the residual stream
/// are multiplied.
inline void scale_and_cap(model::Graph& graph, const Coordinate&) {
  scale_output(graph, "model.embed_tokens", 5);
  scale_output(graph, "model.layers.0.mlp.down_proj", 0.3);
  graph.nodes[node_index(graph, "lm_head")].attributes = attributes_of(HeadLoss{{0.4}});
}

/// Layer 1 reads its input through the output projection of layer 0, which the model so uses twice.
inline void use_projection_twice(model::Graph& graph, const Coordinate&) {
  const std::size_t norm = node_index(graph, "model.layers.1.input_layernorm");
  model::Node again = graph.nodes[node_index(graph, "model.layers.0.self_attn.o_proj")];
  model::Value output = graph.value(graph.nodes[norm].inputs[0]);
  output.name = again.name = "again";
  again.inputs[0] = graph.nodes[norm].inputs[0];
  again.block = graph.nodes[norm].block;
  again.piece.clear();
  again.outputs = {graph.add(std::move(output))};
  graph.nodes[norm].inputs[0] = again.outputs[0];
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(norm), std::move(again));
}

}  // namespace ztrain::test
