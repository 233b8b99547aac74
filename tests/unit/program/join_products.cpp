// Which products of a model become one, and what keeps them apart.

#include "program/passes/join_products.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "layout/layout.hpp"
#include "model/fp8.hpp"
#include "model/lora.hpp"
#include "program/passes/units.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::join_products_test {
namespace {

using model::Graph;
using model::Node;
using model::Parameter;

/// Every matrix and every bias is a multiple of the quantum.
config::Model even_dims() {
  config::Model m = test::small_dims(2, false);
  m.hidden_size = 32;
  m.intermediate_size = 48;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 128;
  return m;
}

Graph graph_of(const config::Model& dims) {
  return model::decoder(dims, {32, DType::bf16, model::Objective::loss});
}

/// The last words of the layers of block 1 that are one product each.
std::set<std::string> joined(Graph graph) {
  join_products(graph);
  std::set<std::string> names;
  for (const Node& node : graph.nodes)
    if (node.block == 2 && node.op == "linear" && node.attributes.integer("parts", 1) > 1)
      names.insert(node.name.substr(node.name.rfind('.') + 1));
  return names;
}

const std::string qkv = "q_proj+k_proj+v_proj", gate_up = "gate_proj+up_proj";
const std::set<std::string> all{qkv, gate_up};

Parameter& parameter(Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.parameters, name, &Parameter::name);
  EXPECT_NE(found, graph.parameters.end()) << name;
  return *found;
}

const Node& node_of(const Graph& graph, const std::string& name) {
  return graph.nodes[test::node_index(graph, name)];
}

TEST(JoinProducts, OfQueriesKeysValuesAndOfGateAndUp) {
  EXPECT_EQ(joined(graph_of(even_dims())), all);
  config::Model dims = even_dims();
  dims.attention_bias = true;
  EXPECT_EQ(joined(graph_of(dims)), all);
}

TEST(JoinProducts, LeavesOneRopeAndOneInputOfAttention) {
  Graph graph = graph_of(even_dims());
  const std::size_t before = graph.nodes.size();
  join_products(graph);
  EXPECT_EQ(graph.nodes.size(), before - 2 * (2 + 1 + 1));
  const std::string attention = "model.layers.1.self_attn.", mlp = "model.layers.1.mlp.";
  const Node& product = node_of(graph, attention + qkv);
  EXPECT_EQ(product.inputs.size(), 4u);
  EXPECT_EQ(graph.value(product.outputs[0]).shape, (Shape{32, (4 + 2 + 2) * 128}));
  const Node& rope = node_of(graph, attention + "q_rope+k_rope");
  EXPECT_EQ(rope.inputs[0], product.outputs[0]);
  EXPECT_EQ(rope.attributes.integer("heads"), 6);
  EXPECT_EQ(node_of(graph, attention + "attention").inputs.size(), 2u);
  EXPECT_EQ(node_of(graph, attention + "attention").inputs[0], rope.outputs[0]);
  EXPECT_EQ(graph.value(node_of(graph, mlp + gate_up).outputs[0]).shape, (Shape{32, 96}));
  EXPECT_EQ(node_of(graph, mlp + "swiglu").inputs, node_of(graph, mlp + gate_up).outputs);
  std::set<model::ValueId> made;
  for (const Node& node : graph.nodes) {
    for (const model::ValueId in : node.inputs)
      EXPECT_TRUE(graph.value(in).role != model::Role::activation || made.contains(in)) << node.name;
    made.insert(node.outputs.begin(), node.outputs.end());
  }
}

TEST(JoinProducts, NotWhereOneOfThemIsNotAlikeOrReadElsewhere) {
  config::Model dims = even_dims();
  dims.qk_norm = true;
  EXPECT_EQ(joined(graph_of(dims)), std::set{gate_up}) << "heads are normalised";
  dims = even_dims();
  dims.hidden_size = 31;
  EXPECT_EQ(joined(graph_of(dims)), std::set{qkv}) << "gate has 31 x 48 elements";
  dims = even_dims();
  dims.head_dim = 96;
  dims.attention_bias = true;
  EXPECT_EQ(joined(graph_of(dims)), std::set{gate_up}) << "a bias of 384";

  Graph graph = graph_of(even_dims());
  parameter(graph, "model.layers.1.self_attn.k_proj.weight").trainable = false;
  EXPECT_EQ(joined(graph), std::set{gate_up}) << "frozen keys";
  graph = graph_of(even_dims());
  parameter(graph, "model.layers.1.self_attn.k_proj.weight").state_over = Axis::shard;
  EXPECT_EQ(joined(graph), std::set{gate_up}) << "keys whose state is sharded over fewer axes";
  graph = graph_of(even_dims());
  model::add_adapters(graph, {2, 2, 0, {"up_proj"}}, 1);
  EXPECT_EQ(joined(graph), std::set{qkv}) << "an adapter";
  graph = graph_of(even_dims());
  model::use_fp8(graph, "rowwise");
  EXPECT_EQ(joined(graph), std::set<std::string>{}) << "codes";
}

TEST(JoinProducts, TwiceIsAsOnce) {
  Graph graph = graph_of(even_dims());
  join_products(graph);
  const std::vector<Node> once = graph.nodes;
  join_products(graph);
  ASSERT_EQ(graph.nodes.size(), once.size());
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_EQ(graph.nodes[i].inputs, once[i].inputs) << once[i].name;
}

TEST(JoinProducts, NotWhereAWeightHasAnotherReader) {
  Graph graph = graph_of(even_dims());
  const model::ValueId shared = parameter(graph, "model.layers.1.mlp.up_proj.weight").value;
  for (Node& node : graph.nodes)
    if (node.name == "model.layers.0.mlp.up_proj") node.inputs[1] = shared;
  EXPECT_EQ(joined(graph), std::set{qkv});
}

/// Whatever the units: the places of the joined weights in a flat range follow one another.
void expect_neighbours(const UnitOptions& options) {
  Graph graph = graph_of(even_dims());
  join_products(graph);
  group_parameters(graph, options);
  std::vector<ParameterShape> shapes;
  for (const Parameter& p : graph.parameters) shapes.push_back({p.name, p.shape, {}, p.unit});
  const Layout layout(shapes, {graph.units.size(), {3}});
  int followers = 0;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& p = graph.parameters[i];
    if (p.joined < 0 || p.joined == static_cast<int>(i)) continue;
    ++followers;
    const Segment &before = layout.segment_of(static_cast<int>(i) - 1),
                  &here = layout.segment_of(static_cast<int>(i));
    EXPECT_EQ(p.unit, graph.parameters[i - 1].unit) << p.name;
    EXPECT_EQ(here.begin, before.begin + before.count) << p.name;
  }
  EXPECT_EQ(followers, 2 * (2 + 1));
}

TEST(JoinProducts, KeepsWeightsSideBySideInEveryUnit) {
  expect_neighbours({});
  expect_neighbours({UnitGranularity::model, 0, {}, 0});
  expect_neighbours(
      {UnitGranularity::pattern, 0, {"model.layers.*.self_attn.q_proj", "model.layers.*.mlp"}, 0});
  const std::int64_t keys = 2 * 128 * 32;
  expect_neighbours({UnitGranularity::block, 0, {}, keys + 1});
}

TEST(JoinProducts, RefusesAPatternThatWouldBeOfNoEffect) {
  const std::string message = test::refusal([] {
    Graph graph = graph_of(even_dims());
    join_products(graph);
    group_parameters(graph, {UnitGranularity::pattern, 0, {"model.layers.*.mlp.up_proj"}, 0});
  });
  EXPECT_NE(
      message.find("'model.layers.*.mlp.up_proj' matches model.layers.0.mlp.up_proj.weight, which is one "
                   "product with model.layers.0.mlp.gate_proj.weight"),
      std::string::npos)
      << message;
}

TEST(JoinProducts, GradientsAreWrittenAndAddedToTogether) {
  const JobSpec spec = test::spec_on(1, 2, find_strategy("FULL_SHARD"));
  const Job job = compile(graph_of(even_dims()), spec, 0);
  int products = 0;
  for (const Op& op : job.train().ops) {
    if (op.type != "linear_grad_weight" || op.attributes.integer("parts", 1) == 1) continue;
    ++products;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(op.attributes.integer("parts")); ++i) {
      const Tensor& t = job.train().tensor(op.outputs[i]);
      rows += t.shape[0];
      if (i == 0) continue;
      const Tensor& before = job.train().tensor(op.outputs[i - 1]);
      EXPECT_EQ(t.base, before.base);
      EXPECT_EQ(t.offset, before.offset + before.bytes());
    }
    EXPECT_EQ(rows, job.train().tensor(op.inputs[0]).shape[1]);
    EXPECT_EQ(op.flops, 2.0 * 32 * static_cast<double>(rows) * 32);
  }
  EXPECT_EQ(products, 2 * 2 * 2) << "kinds, blocks, micro-batches";
}

}  // namespace
}  // namespace ztrain::program::join_products_test
