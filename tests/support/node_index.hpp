#pragma once
// Nodes of a graph by their names, and graphs that are changed: one uses a layer twice, one scales and caps,
// one has other activations.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/activation/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/head/record.hpp"
#include "kernels/linear/record.hpp"
#include "layout/mesh.hpp"
#include "model/graph.hpp"

namespace ztrain::test {

/// Throws Error when no node has this name.
inline std::size_t node_index(const model::Graph& graph, const std::string& name) {
  const auto node = std::ranges::find(graph.nodes, name, &model::Node::name);
  REQUIRE(node != graph.nodes.end(), "the model has no op named '{}'", name);
  return static_cast<std::size_t>(node - graph.nodes.begin());
}

/// Puts an op of this record behind the node of this name. It reads the node's output and `others`, and what
/// read the node's output reads its.
template <class Record>
void insert_after(model::Graph& graph, const std::string& name, const Record& record,
                  const std::vector<model::ValueId>& others = {}) {
  const auto at = static_cast<std::ptrdiff_t>(node_index(graph, name));
  model::Node node = graph.nodes[static_cast<std::size_t>(at)];
  const model::ValueId from = node.outputs[0];
  model::Value output = graph.value(from);
  node.op = Record::op;
  output.name = node.name = name + "." + node.op;
  node.attributes = attributes_of(record);
  node.inputs = {from};
  node.inputs.insert(node.inputs.end(), others.begin(), others.end());
  node.outputs = {graph.add(std::move(output))};
  for (auto later = graph.nodes.begin() + at + 1; later != graph.nodes.end(); ++later)
    std::ranges::replace(later->inputs, from, node.outputs[0]);
  graph.nodes.insert(graph.nodes.begin() + at + 1, std::move(node));
}

/// The head caps its logits so that most are bent, and the embedding and a branch beside the residual stream
/// are multiplied.
inline void scale_and_cap(model::Graph& graph, const Coordinate&) {
  insert_after(graph, "model.embed_tokens", Scale{5});
  insert_after(graph, "model.layers.0.mlp.down_proj", Scale{0.3});
  graph.nodes[node_index(graph, "lm_head")].attributes = attributes_of(HeadLoss{{0.4}});
}

/// In layer 0 the gate is GELU's, and the other factor goes through GELU and xIELU, whose constants are
/// trained.
inline void mix_activations(model::Graph& graph, const Coordinate&) {
  const std::string mlp = "model.layers.0.mlp.";
  const model::Node up = graph.nodes[node_index(graph, mlp + "up_proj")];
  const auto constant = [&](const std::string& name, double value) {
    model::Parameter p{
        .name = mlp + name, .shape = {1}, .unit = graph.parameter_of(up.inputs[Linear::weight]).unit};
    p.init = model::Init::constant;
    p.init_std = value;
    p.decay = false;
    return graph.add(std::move(p), graph.value(up.outputs[0]).dtype);
  };
  insert_after(graph, up.name, Xielu{}, {constant("alpha_p", 0.2), constant("alpha_n", -1)});
  insert_after(graph, up.name, Activation{"gelu_tanh"});
  const auto gate = std::ranges::find(graph.nodes, GatedActivation::op, &model::Node::op);
  gate->attributes = attributes_of(GatedActivation{"gelu_tanh"});
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
