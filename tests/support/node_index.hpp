#pragma once
// Nodes of a graph by their names, and a graph that uses a layer twice.

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "layout/mesh.hpp"
#include "model/graph.hpp"

namespace ztrain::test {

/// Throws Error when no node has this name.
inline std::size_t node_index(const model::Graph& graph, const std::string& name) {
  const auto node = std::ranges::find(graph.nodes, name, &model::Node::name);
  REQUIRE(node != graph.nodes.end(), "the model has no op named '{}'", name);
  return static_cast<std::size_t>(node - graph.nodes.begin());
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
