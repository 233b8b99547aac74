// What backward makes of a forward graph: gradients of values with several readers, what is run again, and
// what is written over its input.

#include "program/passes/expand.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/experts/record.hpp"
#include "model/builder.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::expand_test {
namespace {

using test::small_model;
using test::spec_on;

constexpr std::int64_t tokens = 8, width = 4, words = 10;

/// x: embedding; f: linear of x; once = x + f; twice = once + x where asked for; and the loss of the last.
model::Graph residual(bool twice) {
  model::Builder b(DType::f32);
  const auto parameter = [&](const char* name, Shape shape) {
    return b.parameter(name, std::move(shape), model::Init::normal, 0.1);
  };
  b.block("embedding");
  const model::ValueId x =
      b.embedding("x", b.input("tokens", DType::i32, {tokens}), parameter("x.weight", {words, width}));
  b.block("layer");
  const model::ValueId f = b.linear("f", x, parameter("f.weight", {width, width}));
  model::ValueId y = b.add("once", x, f);
  if (twice) y = b.add("twice", y, x);
  b.block("head");
  const model::ValueId weight = parameter("head.weight", {words, width});
  const model::ValueId targets = b.input("targets", DType::i32, {tokens});
  return std::move(b).finish(
      b.head_loss("head", y, weight, targets, b.input("weights", DType::f32, {tokens})));
}

Program step_of(const model::Graph& graph) {
  JobSpec spec = spec_on(1, 1, find_strategy("NO_SHARD"), 1);
  spec.precision = {};
  return compile(graph, spec, 0).train();
}

const Op& find(const Program& p, std::string_view type, std::string_view name, ActionKind kind) {
  const auto found = std::find_if(p.ops.begin(), p.ops.end(), [&](const Op& op) {
    return op.type == type && op.name == name && op.action.kind == kind;
  });
  if (found == p.ops.end()) throw Error(fmt::format("no op {} {}", type, name));
  return *found;
}

TEST(Gradients, OfASumAreSharedUntilOneIsAddedTo) {
  const Program p = step_of(residual(false));
  const TensorId dy = find(p, "head_loss_grad", "head", ActionKind::backward).outputs[1];
  const Op& copy = find(p, "copy", "x", ActionKind::backward);
  EXPECT_EQ(copy.inputs[0], dy) << "x and f have the gradient of their sum";
  const Op& grad = find(p, "linear_grad_input", "f", ActionKind::backward);
  EXPECT_EQ(grad.inputs[0], dy);
  EXPECT_EQ(grad.outputs[0], copy.outputs[0]) << "what f's layer adds to x's gradient is none of f's";
  EXPECT_EQ(grad.attributes.integer("accumulate"), 1);
  EXPECT_EQ(find(p, "linear_grad_weight", "f", ActionKind::backward).inputs[0], dy);
  EXPECT_EQ(find(p, "embedding_grad", "x", ActionKind::backward).inputs[1], copy.outputs[0]);
}

TEST(Gradients, OfAValueThatTwoSumsReadAddUp) {
  const Program p = step_of(residual(true));
  const TensorId dy = find(p, "head_loss_grad", "head", ActionKind::backward).outputs[1];
  const Op& sum = find(p, "add", "x", ActionKind::backward);
  EXPECT_EQ(sum.inputs, (std::vector<TensorId>{dy, dy})) << "one from each sum";
  EXPECT_NE(sum.outputs[0], dy) << "f has that gradient too";
  EXPECT_EQ(find(p, "linear_grad_input", "f", ActionKind::backward).outputs[0], sum.outputs[0]);
  EXPECT_EQ(find(p, "embedding_grad", "x", ActionKind::backward).inputs[1], sum.outputs[0]);
}

TEST(Overlay, TakesTheInputThatNobodyReadsLater) {
  const Program p = step_of(residual(true));
  const TensorId x = find(p, "embedding", "x", ActionKind::forward).outputs[0];
  const TensorId f = find(p, "linear", "f", ActionKind::forward).outputs[0];
  const Op &once = find(p, "add", "once", ActionKind::forward),
           &twice = find(p, "add", "twice", ActionKind::forward);
  EXPECT_EQ(once.inputs, (std::vector<TensorId>{x, f}));
  EXPECT_EQ(once.outputs[0], f) << "x is read by the second sum, and in backward";
  EXPECT_EQ(twice.inputs, (std::vector<TensorId>{f, x}));
  EXPECT_EQ(twice.outputs[0], f);
}

TEST(Recomputation, IsOfEveryKthBlockFromTheFirstLayerOn) {
  const auto again = [](int every) {
    JobSpec spec = spec_on(1, 1, find_strategy("NO_SHARD"), 1);
    spec.recompute.every = every;
    const Program p = compile(small_model(5), spec, 0).train();
    std::set<std::string> layers;
    for (const Op& op : p.ops)
      if (op.action.kind == ActionKind::recompute)
        if (const std::string& block = p.blocks[static_cast<std::size_t>(op.action.part)];
            block.starts_with("model.layers."))
          layers.insert(block.substr(block.rfind('.') + 1));
    return layers;
  };
  EXPECT_EQ(again(0), std::set<std::string>{});
  EXPECT_EQ(again(1), (std::set<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(again(2), (std::set<std::string>{"0", "2", "4"}));
  EXPECT_EQ(again(3), (std::set<std::string>{"0", "3"}));
}

constexpr std::int64_t top_k = 2;

/// residual(), in which f's rows go to `width` experts and come back.
model::Graph routed() {
  using model::ValueId;
  model::Graph graph = residual(false);
  const auto f = std::ranges::find(graph.nodes, "f", &model::Node::name);
  const auto once = std::ranges::find(graph.nodes, "once", &model::Node::name);
  std::vector<model::Node> nodes;
  const auto emit = [&](const auto& record, const char* name, std::vector<ValueId> inputs,
                        std::vector<std::pair<DType, Shape>> outputs) {
    model::Node node{
        std::string(record.op), name, std::move(inputs), {}, attributes_of(record), f->block, ""};
    for (const auto& [dtype, shape] : outputs) {
      node.outputs.push_back(static_cast<ValueId>(graph.values.size()));
      graph.values.push_back({fmt::format("{}.{}", name, node.outputs.size()), dtype, shape});
    }
    nodes.push_back(node);
    return node.outputs;
  };
  const std::pair<DType, Shape> chosen{DType::i32, {tokens, top_k}};
  const auto logits = emit(RouterLogits{}, "logits", f->inputs, {{DType::f32, {tokens, width}}});
  const auto route = emit(Route{{.top_k = top_k}}, "route", logits, {{DType::f32, chosen.second}, chosen});
  const auto sorted = emit(SortByExpert{width}, "sort", {route[1]}, {chosen, {DType::i32, {width + 1}}});
  const auto rows =
      emit(Permute{}, "rows", {f->outputs[0], sorted[0]}, {{DType::f32, {tokens * top_k, width}}});
  const auto y = emit(Combine{}, "combined", {rows[0], sorted[0], route[0]}, {{DType::f32, {tokens, width}}});
  std::ranges::replace(once->inputs, f->outputs[0], y[0]);
  graph.nodes.insert(once, nodes.begin(), nodes.end());
  return graph;
}

/// A token's experts are chosen once: what backward runs again reads the choice of forward.
TEST(Recomputation, KeepsWhatIsChosen) {
  JobSpec spec = spec_on(1, 1, find_strategy("NO_SHARD"), 1);
  spec.precision = {};
  spec.recompute.every = 1;
  const Program p = compile(routed(), spec, 0).train();
  std::set<std::string> again;
  for (const Op& op : p.ops)
    if (op.action.kind == ActionKind::recompute) again.insert(op.type);
  EXPECT_EQ(again, (std::set<std::string>{"linear", "permute", "router_logits"}));
  const Op &choice = find(p, "route", "route", ActionKind::forward),
           &sort = find(p, "sort_by_expert", "sort", ActionKind::forward);
  const Op& back = find(p, "route_grad", "route", ActionKind::backward);
  EXPECT_EQ(back.inputs[RouteGrad::experts], choice.outputs[Route::experts]);
  EXPECT_EQ(find(p, "permute", "rows", ActionKind::recompute).inputs[Permute::slots],
            sort.outputs[SortByExpert::slots]);
}

/// A rank sorts the rows of its own tokens: it has some of the rows, and offsets of all experts.
TEST(Placement, OfSortedRowsIsByRankWithOffsetsOfAllExperts) {
  for (const Axis axis : {Axis::shard, Axis::context}) {
    JobSpec spec = spec_on(1, 1, find_strategy("NO_SHARD"), 1);
    spec.precision = {};
    spec.mesh[axis] = 2;
    EXPECT_NO_THROW(verify_job(routed(), spec));
    const Program p = compile(routed(), spec, 1).train();
    const Op& sort = find(p, "sort_by_expert", "sort", ActionKind::forward);
    const std::int64_t own = axis == Axis::context ? tokens / 2 : tokens;
    EXPECT_EQ(p.tensor(sort.outputs[SortByExpert::slots]).shape, (Shape{own, top_k}));
    EXPECT_EQ(p.tensor(sort.outputs[SortByExpert::offsets]).shape, (Shape{width + 1}));
    const Op& combine = find(p, "combine", "combined", ActionKind::forward);
    EXPECT_EQ(p.tensor(combine.inputs[Combine::rows]).shape, (Shape{own * top_k, width}));
  }
}

}  // namespace
}  // namespace ztrain::program::expand_test
