// Which parameters are gathered together, on a model made by hand.

#include "program/passes/units.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain::program::units_test {
namespace {

using model::Graph;

void add(Graph& graph, const std::string& name, Shape shape, int unit) {
  model::Parameter p;
  p.name = name;
  p.shape = std::move(shape);
  p.unit = unit;
  graph.parameters.push_back(std::move(p));
}

/// Embedding 80, two blocks of 4 + 16 + 32 + 32 each, head 4 + 80.
Graph small_graph() {
  Graph graph;
  graph.units = {{"model.embed_tokens"}, {"model.layers.0"}, {"model.layers.1"}, {"lm_head"}};
  add(graph, "model.embed_tokens.weight", {20, 4}, 0);
  for (int l = 0; l < 2; ++l) {
    const std::string layer = "model.layers." + std::to_string(l);
    add(graph, layer + ".input_layernorm.weight", {4}, 1 + l);
    add(graph, layer + ".self_attn.q_proj.weight", {4, 4}, 1 + l);
    add(graph, layer + ".mlp.up_proj.weight", {8, 4}, 1 + l);
    add(graph, layer + ".mlp.down_proj.weight", {4, 8}, 1 + l);
  }
  add(graph, "model.norm.weight", {4}, 3);
  add(graph, "lm_head.weight", {20, 4}, 3);
  return graph;
}

using Units = std::map<std::string, std::vector<std::string>>;  ///< last words of the parameters, by unit

Units grouped(const UnitOptions& options) {
  Graph graph = small_graph();
  group_parameters(graph, options);
  Units units;
  for (const model::Parameter& p : graph.parameters) {
    const std::string stem = p.name.substr(0, p.name.rfind('.'));
    units[graph.units.at(static_cast<std::size_t>(p.unit)).name].push_back(stem.substr(stem.rfind('.') + 1));
  }
  EXPECT_EQ(units.size(), graph.units.size()) << "a unit without parameters";
  return units;
}

const std::vector<std::string> block{"input_layernorm", "q_proj", "up_proj", "down_proj"};

TEST(Units, BlocksAreTheFamilys) {
  EXPECT_EQ(grouped({}), (Units{{"model.embed_tokens", {"embed_tokens"}},
                                {"model.layers.0", block},
                                {"model.layers.1", block},
                                {"lm_head", {"norm", "lm_head"}}}));
}

TEST(Units, WhatIsShardedOverOtherAxesIsApartAndGatheredTogether) {
  Graph graph = small_graph();
  graph.parameters[3].state_over = Axis::shard;
  group_parameters(graph, {});
  const auto unit_of = [&](std::size_t p) { return graph.units.at(at(graph.parameters[p].unit)); };
  EXPECT_EQ(unit_of(3).name, "model.layers.0 (sharded over shard)");
  EXPECT_EQ(unit_of(2).name, "model.layers.0");
  EXPECT_EQ(unit_of(3).together, unit_of(2).together);
  EXPECT_EQ(graph.units.size(), 5u);
}

TEST(Units, ConstantsOfAllBlocksAreOneThatIsKeptWhole) {
  Graph graph = small_graph();
  for (const std::size_t p : {2, 6})
    graph.parameters[p].constant = true, graph.parameters[p].trainable = false;
  group_parameters(graph, {});
  EXPECT_EQ(graph.parameters[2].unit, graph.parameters[6].unit);
  const model::Unit& unit = graph.units.at(at(graph.parameters[2].unit));
  EXPECT_EQ(unit.name, "constants");
  EXPECT_TRUE(unit.constant && unit.kept_whole && !unit.trainable);
  EXPECT_EQ(graph.units.size(), 5u);
}

TEST(Units, SmallNeighboursAreJoined) {
  EXPECT_EQ(grouped({UnitGranularity::size, 84, {}, 0}).size(), 3U) << "the embedding alone has 80";
  const Units pairs = grouped({UnitGranularity::size, 100, {}, 0});
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs.at("model.embed_tokens to model.layers.0").size(), 5U);
  EXPECT_EQ(pairs.at("model.layers.1 to lm_head").size(), 6U);
  EXPECT_EQ(grouped({UnitGranularity::size, 80, {}, 0}).size(), 4U) << "80 are enough";
  EXPECT_EQ(grouped({UnitGranularity::size, 1000, {}, 0}).size(), 1U);
}

TEST(Units, TheModelIsOne) {
  const Units units = grouped({UnitGranularity::model, 0, {}, 0});
  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units.at("model").size(), 11U);
}

TEST(Units, ModulesThatMatchAPatternAreUnits) {
  EXPECT_EQ(
      grouped({UnitGranularity::pattern, 0, {"model.layers.*.mlp", "model.layers.1.self_attn.q_proj"}, 0}),
      (Units{{"model.embed_tokens", {"embed_tokens"}},
             {"model.layers.0", {"input_layernorm", "q_proj"}},
             {"model.layers.0.mlp", {"up_proj", "down_proj"}},
             {"model.layers.1", {"input_layernorm"}},
             {"model.layers.1.mlp", {"up_proj", "down_proj"}},
             {"model.layers.1.self_attn.q_proj", {"q_proj"}},
             {"lm_head", {"norm", "lm_head"}}}));
}

TEST(Units, OfModulesWithinEachOtherTheInnerOneIsTheUnit) {
  const Units units =
      grouped({UnitGranularity::pattern, 0, {"model.layers.?", "model.layers.*.mlp.up_proj"}, 0});
  EXPECT_EQ(units.at("model.layers.0.mlp.up_proj"), std::vector<std::string>{"up_proj"});
  EXPECT_EQ(units.at("model.layers.0"), (std::vector<std::string>{"input_layernorm", "q_proj", "down_proj"}));
}

TEST(Units, APatternWithoutMatchIsRefused) {
  Graph graph = small_graph();
  try {
    group_parameters(graph,
                     {UnitGranularity::pattern, 0, {"model.layers.*.mlp", "model.layers.*.attention"}, 0});
    FAIL() << "accepted";
  } catch (const Error& e) {
    const std::string said = e.what();
    EXPECT_NE(said.find("sharding.unit_patterns: 'model.layers.*.attention' matches no module"),
              std::string::npos)
        << said;
  }
}

TEST(Units, SmallParametersAreKeptWholeInAUnitOfTheirOwn) {
  for (const auto granularity : {UnitGranularity::block, UnitGranularity::size, UnitGranularity::model}) {
    Graph graph = small_graph();
    group_parameters(graph, {granularity, 84, {}, 16});
    for (const model::Parameter& p : graph.parameters) {
      const model::Unit& unit = graph.units.at(static_cast<std::size_t>(p.unit));
      EXPECT_EQ(unit.kept_whole, elements(p.shape) < 16) << p.name << ": 16 is not below 16";
      EXPECT_EQ(unit.name == "parameters kept whole", unit.kept_whole);
    }
  }
  Graph all = small_graph();
  group_parameters(all, {UnitGranularity::block, 0, {}, 81});
  ASSERT_EQ(all.units.size(), 1U) << "all are kept";
  EXPECT_TRUE(all.units[0].kept_whole);
}

}  // namespace
}  // namespace ztrain::program::units_test
