// What a plan says of the same deck with one thing changed: costs that are compiled beside the deck's own.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/validate/validate.hpp"
#include "plan/report/report.hpp"
#include "plan/search.hpp"
#include "plan/setup.hpp"
#include "plan/step_time.hpp"
#include "tests/support/plan_decks.hpp"

namespace ztrain::plan::plan_others_test {
namespace {

using test::Decks;

/// One node of 4 ranks whose links are slow beside its arithmetic.
std::vector<std::string> shared_layers(const char* overlap) {
  return {"mesh.tensor=4",
          "mesh.shard=1",
          fmt::format("tensor.overlap={}", overlap),
          "cluster.ranks_per_node=4",
          "cluster.intra_node_bandwidth=1",
          "cluster.latency=0",
          "cluster.peak_tflops=0.05"};
}

TEST_F(Decks, OverlapOfTensorCommunicationHasItsPrice) {
  const Question q = question(4, 0, shared_layers("false"));
  const Cost own = cost_of(q);
  const std::optional<Cost> other = cost_with_other_overlap(q, own);
  ASSERT_TRUE(other.has_value());
  EXPECT_TRUE(other->deck.tensor.overlap);
  EXPECT_EQ(total_bytes(other->traffic), total_bytes(own.traffic));
  EXPECT_LT(other->step.exposed, 0.6 * own.step.exposed);
  EXPECT_LT(other->step.seconds, own.step.seconds);
  const Question back = question(4, 0, shared_layers("true"));
  const std::optional<Cost> again = cost_with_other_overlap(back, cost_of(back));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->step.seconds, own.step.seconds);
  EXPECT_EQ(held(*again), held(own));
}

/// Of a dense model no degree is tried, and the deck's own capacity is the only one.
TEST_F(Decks, SearchTriesToDivideExperts) {
  const auto tried = [&](std::vector<std::string> overrides, const char* what) {
    for (const char* closed :
         {"mesh.pipeline=1", "mesh.tensor=1", "mesh.context=1", "model.num_hidden_layers=2"})
      overrides.emplace_back(closed);
    const Search s = search_for(question(4, 0, overrides), Watch(10'000, 60), 1000);
    return std::ranges::count_if(s.best,
                                 [&](const Setting& x) { return std::ranges::count(x.overrides, what) > 0; });
  };
  std::vector<std::string> mixture{"model.family=qwen3_moe", "model.num_experts=6",
                                   "model.num_experts_per_tok=2", "model.moe_intermediate_size=32"};
  EXPECT_GT(tried(mixture, "mesh.expert=2"), tried(mixture, "experts.capacity=2"));
  EXPECT_GT(tried(mixture, "experts.capacity=2"), 0);
  EXPECT_EQ(tried(mixture, "mesh.expert=4"), 0) << "6 experts do not divide";
  mixture.emplace_back("experts.capacity=1.5");
  EXPECT_GT(tried(mixture, "mesh.expert=2"), 0);
  EXPECT_EQ(tried(mixture, "experts.capacity=2"), 0);
  EXPECT_EQ(tried({}, "mesh.expert=2"), 0);
}

TEST_F(Decks, FasterSumsOfGradientsAreFoundWhereTheStepWaits) {
  const auto sums = [&](const char* bandwidth, double memory) {
    const Question q =
        question(4, memory,
                 {"batch.micro=1", "mesh.shard=4", "precision.preset=bf16", "cluster.ranks_per_node=4",
                  "cluster.latency=0", fmt::format("cluster.intra_node_bandwidth={}", bandwidth)});
    const Cost own = cost_of(q);
    EXPECT_GT(config::accumulation_steps(own.deck), 1);
    std::vector<std::string> found;
    for (const OtherSums& o : with_other_sums(q, own)) {
      EXPECT_LT(o.cost.step.seconds, 0.98 * own.step.seconds);
      found.push_back(o.change.overrides.front());
    }
    return found;
  };
  const std::vector<std::string> both{"sharding.gradient_accumulation=no_sync", "precision.reduce=bf16"};
  EXPECT_EQ(sums("0.1", 80e9), both);
  EXPECT_TRUE(sums("100000", 80e9).empty()) << "nothing waits";
  EXPECT_TRUE(sums("0.1", 1e6).empty()) << "nothing fits";
}

/// A step that is compiled from a few micro-batches has the numbers of one of which all are compiled.
TEST_F(Decks, NumbersAreThoseOfEveryMicroBatch) {
  const Question q = question(4, 0,
                              {"batch.micro=1", "offload.activations=host", "offload.parameters=host",
                               "mesh.replicate=2", "mesh.shard=2"});
  const Cost c = cost_of(q);
  program::JobSpec spec = job_spec(c.deck, c.machine.target);
  spec.every_micro_batch = true;
  const model::Graph graph = training_graph(c.deck);
  const program::Program p = program::compile(graph, spec, 0).train();
  ASSERT_GT(c.extrapolated_from, 0) << "nothing is left out";
  std::int64_t sent = 0, calls = 0, copied = 0, copies = 0, parameters = 0;
  double flops = 0;
  const auto tier = [&](program::TensorId t) { return p.tensor(p.storage(t)).tier; };
  for (const program::Op& op : p.ops) {
    flops += op.flops;
    if (op.communicates()) ++calls, sent += op.comm.sent_bytes;
    if (op.type == "copy" && tier(op.inputs[0]) != tier(op.outputs[0]))
      ++copies, copied += p.tensor(op.inputs[0]).bytes();
  }
  for (const model::Parameter& parameter : graph.parameters) parameters += elements(parameter.shape);
  const auto json = report_json({.question = q, .cost = c, .strategies = {}, .fixes = {}, .search = {}});
  EXPECT_EQ(json["ops"], p.ops.size());
  EXPECT_EQ(json["traffic"]["bytes"], sent);
  EXPECT_EQ(json["traffic"]["calls"], calls);
  std::int64_t told_bytes = 0, told_copies = 0;
  for (const auto& row : json["tier_traffic"])
    told_bytes += row["bytes"].get<std::int64_t>(), told_copies += row["copies"].get<std::int64_t>();
  EXPECT_GT(copied, 0);
  EXPECT_EQ(told_bytes, copied);
  EXPECT_EQ(told_copies, copies);
  EXPECT_EQ(json["model"]["parameters"], parameters);
  const auto& time = json["time"];
  const double seconds = simulate(p, c.machine).seconds, tokens = 32 * 64;
  EXPECT_NEAR(time["flops_per_rank"], flops, 1e-9 * flops);
  EXPECT_NEAR(time["step_seconds"], seconds, 1e-6 * seconds);
  EXPECT_NEAR(time["tokens_per_second"], tokens / seconds, 1e-6 * tokens / seconds);
  EXPECT_DOUBLE_EQ(json["batch"]["flops_per_step"], c.flops_per_token * tokens);
  EXPECT_EQ(json["batch"]["accumulation"], 8) << "32 sequences of 4 ranks";
}

/// A rank waits for others for all of a step but its own work, and what its own links and copies keep it
/// from.
TEST_F(Decks, TheBubbleIsWhatIsNoWorkAndNoWaitForItself) {
  ByAction exposed{};
  bool early = false;
  for (const char* schedule : {"1f1b", "dualpipe-v"}) {
    const Cost c = cost_of(question(4), {"mesh.pipeline=2", "cluster.intra_node_bandwidth=1",
                                         fmt::format("pipeline.schedule={}", schedule)});
    ASSERT_EQ(c.stages.size(), 2u);
    double bubble = 0;
    for (const StageCost& stage : c.stages) {
      double others = c.step.seconds;
      for (int kind = 0; kind < program::action_kind_count; ++kind) {
        const auto k = static_cast<std::size_t>(kind);
        const auto action = static_cast<program::ActionKind>(kind);
        others -= stage.step.busy[static_cast<std::size_t>(program::Stream::compute)][k];
        exposed[k] += stage.step.exposed_by[k];
        if (action != program::ActionKind::send && action != program::ActionKind::recv)
          others -= stage.step.exposed_by[k];
      }
      EXPECT_NEAR(stage.waiting, others, 1e-9 * c.step.seconds) << schedule << ", rank " << stage.rank;
      early = early || stage.step.seconds < c.step.seconds;
      bubble += others / c.step.seconds / 2;
    }
    EXPECT_NEAR(c.bubble(), bubble, 1e-9);
  }
  EXPECT_TRUE(early);
  for (const auto kind : {program::ActionKind::send, program::ActionKind::recv, program::ActionKind::norm})
    EXPECT_GT(exposed[static_cast<std::size_t>(kind)], 0) << name_of(kind);
}

TEST_F(Decks, OverlapIsToldOfWhereItMatters) {
  Plan plan{.question = question(4, 0, shared_layers("false")),
            .cost = {},
            .strategies = {},
            .fixes = {},
            .search = {}};
  plan.cost = cost_of(plan.question);
  EXPECT_EQ(report_text(plan).find("tensor.overlap"), std::string::npos);
  plan.other_overlap = cost_with_other_overlap(plan.question, plan.cost);
  const std::string text = report_text(plan);
  EXPECT_NE(text.find("\n  tensor.overlap   false: "), std::string::npos) << text;
  EXPECT_NE(text.find("\n                   true: "), std::string::npos) << text;
  EXPECT_EQ(report_json(plan)["other_overlap"]["overlap"], true);
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"mesh.shard=4"}, {"mesh.tensor=4", "tensor.sequence_parallel=false"}}) {
    const Question none = question(4, 0, overrides);
    EXPECT_FALSE(cost_with_other_overlap(none, cost_of(none)).has_value());
  }
}

bool names(const Setting& x, const std::string& key) {
  return std::ranges::any_of(x.overrides, [&](const std::string& text) { return text.starts_with(key); });
}

TEST_F(Decks, SearchTriesDegreesThatTheDeckLeavesOpen) {
  const Search open = search_for(question(4), Watch(10'000, 60), 1000);
  const auto shared = [](const Setting& x) { return names(x, "mesh.tensor="); };
  const auto staged = [](const Setting& x) { return names(x, "mesh.pipeline="); };
  EXPECT_TRUE(std::ranges::any_of(open.best, shared));
  EXPECT_TRUE(std::ranges::any_of(open.best, staged));
  EXPECT_TRUE(std::ranges::any_of(open.best, [&](const Setting& x) { return shared(x) && staged(x); }));
  for (const Setting& x : open.best) {
    EXPECT_EQ(names(x, "tensor.overlap=true"), shared(x));
    EXPECT_FALSE(names(x, "mesh.context="));
  }
  const Search given =
      search_for(question(4, 0, {"mesh.tensor=1", "mesh.pipeline=1"}), Watch(10'000, 60), 1000);
  EXPECT_FALSE(given.best.empty());
  EXPECT_TRUE(std::ranges::none_of(given.best, shared));
  EXPECT_TRUE(std::ranges::none_of(given.best, staged));
}

/// Sequences are split where whole ones fit nowhere.
TEST_F(Decks, SearchSplitsSequencesWhereNothingElseFits) {
  const std::vector<std::string> split{"sharding.strategy=FULL_SHARD", "batch.micro=1", "recompute.mode=full",
                                       "mesh.shard=1", "mesh.context=4"};
  const double bytes = held(cost_of(question(4, 0, {"mesh.tensor=1"}), split));
  const Search s =
      search_for(question(4, bytes + 1, {"mesh.tensor=1", "mesh.pipeline=1"}), Watch(10'000, 60), 1000);
  ASSERT_FALSE(s.best.empty());
  for (const Setting& x : s.best) EXPECT_TRUE(names(x, "mesh.context=")) << x.overrides.back();
}

/// The most ranks that have equally many heads, and heads of keys, exchange them; the others are a ring.
TEST_F(Decks, RanksThatShareNoHeadsAreARing) {
  struct Row {
    int heads, keys, context, tensor, ring, exchange;
  };
  for (const Row& row : {Row{12, 6, 2, 1, 1, 2},
                         {12, 6, 6, 1, 1, 6},
                         {12, 6, 4, 1, 2, 2},
                         {12, 6, 8, 1, 4, 2},
                         {12, 6, 9, 1, 3, 3},
                         {12, 6, 6, 2, 2, 3},
                         {12, 4, 12, 1, 3, 4},
                         {12, 6, 12, 1, 2, 6}}) {
    const MeshShape mesh = mesh_shape(resolved_deck(question(
        row.context * row.tensor, 0,
        {"context.method=ulysses", "mesh.shard=1", fmt::format("mesh.context={}", row.context),
         fmt::format("mesh.tensor={}", row.tensor), fmt::format("model.num_attention_heads={}", row.heads),
         fmt::format("model.num_key_value_heads={}", row.keys), "model.head_dim=4"})));
    EXPECT_EQ(mesh[Axis::ring], row.ring) << mesh.describe();
    EXPECT_EQ(mesh[Axis::context], row.exchange) << mesh.describe();
  }
}

/// Proofs change nothing that is looked at.
TEST_F(Decks, CostTheSameUnproven) {
  for (const char* strategy : {"sharding.strategy=FULL_SHARD", "sharding.strategy=zero1"}) {
    const Question q = question(4, 0, {strategy});
    const Cost proven = cost_of(q), unproven = cost_of(q, {}, {.proven = false});
    EXPECT_EQ(unproven.step.seconds, proven.step.seconds);
    EXPECT_EQ(held(unproven), held(proven));
    EXPECT_EQ(unproven.ops, proven.ops);
  }
}

}  // namespace
}  // namespace ztrain::plan::plan_others_test
