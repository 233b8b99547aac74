#pragma once
// Nodes of a graph by their names.

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "model/graph.hpp"

namespace ztrain::test {

/// Throws Error when no node has this name.
inline std::size_t node_index(const model::Graph& graph, const std::string& name) {
  const auto node = std::ranges::find(graph.nodes, name, &model::Node::name);
  REQUIRE(node != graph.nodes.end(), "the model has no op named '{}'", name);
  return static_cast<std::size_t>(node - graph.nodes.begin());
}

}  // namespace ztrain::test
