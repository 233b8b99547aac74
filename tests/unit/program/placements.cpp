// How values are spread over the axes of a mesh: what the placing pass makes of a model, and that the check
// of placements refuses every communication that is left out, done twice or done over another axis.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "kernels/communication/record.hpp"
#include "kernels/embedding/record.hpp"
#include "program/ir/placement.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/place.hpp"
#include "tests/support/coded_job.hpp"

namespace ztrain::program::placements_test {
namespace {

using test::refusal;

/// 5 heads of queries and of keys; 32 tokens.
JobSpec spec_over(int replicate, int shard, int context, int tensor, const char* strategy,
                  bool sequence_parallel = true) {
  JobSpec spec = test::spec_on(replicate, shard, find_strategy(strategy));
  spec.mesh[Axis::context] = context;
  spec.mesh[Axis::tensor] = tensor;
  if (tensor > 1) spec.tensor = model::decoder_tensor_plan(test::small_dims(2, false), tensor);
  spec.tensor.sequence_parallel = sequence_parallel;
  return spec;
}

JobSpec by_heads(int shard, int context, int tensor, const char* strategy) {
  JobSpec spec = spec_over(1, shard, context, 1, strategy);
  spec.context = model::ContextMethod::heads, spec.mesh[Axis::tensor] = tensor;
  if (tensor > 1) spec.tensor = model::decoder_tensor_plan(test::dims_by_heads(), tensor);
  return spec;
}

JobSpec with_experts(int shard, int expert, int context, int tensor) {
  JobSpec spec = spec_over(1, shard, context, 1, "FULL_SHARD");
  spec.mesh[Axis::expert] = expert, spec.mesh[Axis::tensor] = tensor;
  if (tensor > 1) spec.tensor = model::decoder_tensor_plan(test::dims_with_experts(), tensor);
  return spec;
}

/// Two groups of ranks that exchange heads, round which keys go.
JobSpec around(JobSpec spec) {
  spec.mesh[Axis::ring] = 2;
  return spec;
}
JobSpec in_ring(const JobSpec& spec) {
  JobSpec ring = spec;
  ring.context = model::ContextMethod::ring;
  return ring;
}

/// As a family may say it: the feed-forwards' state is not sharded over context.
JobSpec over_shard_alone(const JobSpec& spec) {
  JobSpec with = spec;
  with.graph_passes.emplace_back([](model::Graph& graph, const Coordinate&) {
    for (model::Parameter& p : graph.parameters)
      if (p.name.find(".mlp.") != std::string::npos) p.state_over = Axis::shard;
  });
  return with;
}

JobSpec overlapped(const JobSpec& spec) {
  JobSpec with = spec;
  with.overlap_tensor = true;
  return with;
}

model::Graph model_for(const JobSpec& spec) {
  if (!spec.graph_passes.empty())
    return model::decoder(test::dims_of_codes(), {32, DType::bf16, model::Objective::loss});
  if (spec.mesh[Axis::expert] > 1)
    return model::decoder(test::dims_with_experts(), {32, DType::bf16, model::Objective::loss});
  if (spec.context != model::ContextMethod::heads) return test::small_model();
  return model::decoder(test::dims_by_heads(), {32, DType::bf16, model::Objective::loss});
}

std::vector<JobSpec> meshes() {
  return {spec_over(1, 1, 1, 2, "NO_SHARD"),
          spec_over(1, 2, 1, 1, "NO_SHARD"),
          spec_over(2, 2, 1, 2, "FULL_SHARD"),
          spec_over(2, 2, 1, 2, "zero1", false),
          spec_over(1, 2, 2, 1, "SHARD_GRAD_OP"),
          spec_over(2, 1, 2, 4, "zero2"),
          spec_over(1, 3, 1, 5, "FULL_SHARD", false),
          spec_over(3, 1, 1, 4, "NO_SHARD", false),
          spec_over(1, 1, 4, 1, "NO_SHARD"),
          spec_over(1, 2, 2, 2, "zero2", false),
          by_heads(2, 2, 1, "FULL_SHARD"),
          by_heads(1, 2, 2, "zero1"),
          around(by_heads(1, 2, 2, "FULL_SHARD")),
          in_ring(spec_over(1, 1, 2, 1, "NO_SHARD")),
          in_ring(spec_over(1, 2, 4, 1, "FULL_SHARD")),
          in_ring(spec_over(2, 1, 4, 2, "zero1")),
          in_ring(spec_over(1, 2, 2, 2, "zero2", false)),
          overlapped(spec_over(1, 1, 1, 2, "NO_SHARD")),
          overlapped(spec_over(1, 2, 1, 4, "FULL_SHARD")),
          overlapped(in_ring(spec_over(1, 1, 2, 2, "zero2"))),
          with_experts(2, 2, 2, 1),
          with_experts(1, 2, 1, 2),
          over_shard_alone(spec_over(2, 2, 2, 1, "FULL_SHARD")),
          over_shard_alone(spec_over(1, 1, 2, 1, "zero1")),
          over_shard_alone(test::in_codes(2, 2, 2, "rowwise")),
          test::in_codes(2, 2, 2, "tensorwise"),
          test::in_codes(2, 2, 2, "rowwise"),
          test::in_codes(1, 1, 4, "tensorwise", false)};
}

TEST(Placements, OfSecondaryShardsAreAccepted) {
  for (const int inner : {2, 4})
    for (const auto& [context, tensor] : {std::pair{1, 1}, {1, 2}, {2, 1}}) {
      JobSpec spec = spec_over(1, 4, context, tensor, "FULL_SHARD");
      spec.mesh.inner_of(Axis::shard) = inner;
      spec.sharding.secondary_shards = true;
      EXPECT_EQ(refusal([&] { verify_job(test::small_model(), spec); }), "")
          << inner << " " << spec.mesh.describe();
    }
}

TEST(Placements, OfWholeJobsAreAccepted) {
  for (const JobSpec& spec : meshes())
    for (const int recompute : {0, 1}) {
      JobSpec with = spec;
      with.recompute.every = recompute;
      EXPECT_EQ(refusal([&] { verify_job(model_for(spec), with); }), "") << spec.mesh.describe();
    }
}

using Change = void (*)(Program&, std::size_t);

/// Who reads the result takes the input as it is.
void leave_out(Program& p, std::size_t i) {
  p.ops[i].type = "copy", p.ops[i].comm = {};
}
void do_twice(Program& p, std::size_t i) {
  Op again = p.ops[i];
  again.inputs[0] = again.outputs[0];
  p.ops.insert(p.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, again);
}
template <Axis to>
void go_over(Program& p, std::size_t i) {
  p.ops[i].comm.axes = to;
}

struct Fault {
  const char* name;
  Change change;
  Axis over = Axis::pipeline;  ///< pipeline: none in particular
};
constexpr Fault faults[] = {
    {"left out", leave_out},
    {"done twice", do_twice},
    {"over replicate", go_over<Axis::replicate>, Axis::replicate},
    {"over shard", go_over<Axis::shard>, Axis::shard},
    {"over expert", go_over<Axis::expert>, Axis::expert},
    {"over ring", go_over<Axis::ring>, Axis::ring},
    {"over context", go_over<Axis::context>, Axis::context},
    {"over tensor", go_over<Axis::tensor>, Axis::tensor},
};

bool names_a_parameter(const Program& p, const std::string& said) {
  return std::ranges::any_of(
      p.parameters, [&](const ParameterPlace& place) { return said.find(place.name) != std::string::npos; });
}

bool names_an_axis(const std::string& said) {
  return std::ranges::any_of(axis_table, [&](const AxisRow& axis) {
    return said.find(fmt::format("over {}", axis.name)) != std::string::npos;
  });
}

/// The mesh has other ranks over the axis, and the op does not go over just that.
bool changes(const Program& p, const Op& op, Axis over) {
  return over == Axis::pipeline ||
         (p.mesh[over] > 1 && p.mesh.size(op.comm.axes) > 1 && op.comm.axes != AxisSet(over));
}

/// Axes with one rank do not count: over the rest the op is the same.
bool same_group(const Program& p, const Op& op, Axis over) {
  for (const Axis axis :
       {Axis::replicate, Axis::shard, Axis::expert, Axis::ring, Axis::context, Axis::tensor})
    if (p.mesh[axis] > 1 && op.comm.axes.contains(axis) != (axis == over)) return false;
  return true;
}

TEST(Placements, AFaultInAnyCommunicationIsRefused) {
  std::map<std::string, int> planted;  // by kind of fault, axes and action
  for (const JobSpec& spec : meshes()) {
    const Job job = compile(model_for(spec), spec, 0);
    for (std::size_t i = 0; i < job.train().ops.size(); ++i)
      for (const Fault& fault : faults) {
        const Op& op = job.train().ops[i];
        if (!op.communicates() || !changes(job.train(), op, fault.over)) continue;
        if (fault.over != Axis::pipeline && same_group(job.train(), op, fault.over)) continue;
        Program broken = job.train();
        fault.change(broken, i);
        const std::string said = refusal([&] { verify_placements(broken); });
        const std::string what = fault.name + (": " + describe(job.train(), static_cast<OpId>(i))) +
                                 " over " + to_string(op.comm.axes) + " of " + spec.mesh.describe();
        ASSERT_NE(said, "") << what;
        // Losses, norms and inputs are of no parameter.
        const bool of_none = std::set<std::string>{"partials", "document_start.gathered", "scales of weights",
                                                   "expert_counts", "experts"}
                                 .contains(op.name);
        EXPECT_TRUE(of_none || names_a_parameter(broken, said)) << what << "\n  " << said;
        EXPECT_TRUE(names_an_axis(said)) << what << "\n  " << said;
        ++planted[fault.name + std::string(name_of(op.action.kind)) + op.type + to_string(op.comm.axes)];
      }
  }
  EXPECT_GE(planted.size(), 40u) << "kinds of faults";
  for (const char* kind :
       {"left outforwardall_to_allcontext", "done twicebackwardall_to_allcontext",
        "left outforwardall_to_all_rowsexpert", "done twicebackwardall_to_all_rowsexpert*tensor"})
    EXPECT_GT(planted[kind], 0) << kind;
}

/// A gather that was issued early does not hold them up.
TEST(Conversions, HaveAStreamOfTheirOwn) {
  const JobSpec gather = spec_over(1, 2, 2, 2, "FULL_SHARD");
  for (const JobSpec& spec : {gather, by_heads(2, 2, 2, "FULL_SHARD"), in_ring(gather)}) {
    int conversions = 0;
    for (const Op& op : compile(model_for(spec), spec, 0).train().ops) {
      if (!op.communicates()) continue;
      const bool converts = is_compute(op.action.kind);
      conversions += converts ? 1 : 0;
      EXPECT_EQ(op.stream == Stream::exchange, converts) << op.type << " " << op.name;
    }
    EXPECT_GT(conversions, 10);
  }
}

TEST(Placements, AnUnsummedGradientNamesItsParameterAndAxis) {
  const Job job = compile(test::small_model(), spec_over(1, 1, 1, 2, "NO_SHARD"), 0);
  Program broken = job.train();
  for (std::size_t i = 0; i < broken.ops.size(); ++i)
    if (broken.ops[i].action.kind == ActionKind::reduce && broken.ops[i].communicates()) leave_out(broken, i);
  const std::string said = refusal([&] { verify_placements(broken); });
  EXPECT_NE(said.find("the gradient of model.layers.0.input_layernorm.weight is a part of a sum"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("over tensor"), std::string::npos) << said;
}

/// Over data axes tokens are split, and some rows of a table that the tensor axis cuts are as they should be.
TEST(Placements, SomeRowsOfAWholeTableAreRefused) {
  JobSpec spec = spec_over(1, 1, 1, 2, "NO_SHARD");
  const auto cut = spec.tensor.find("model.embed_tokens.weight") - spec.tensor.parameters.data();
  spec.tensor.parameters.erase(spec.tensor.parameters.begin() + cut);
  Program broken = compile(test::small_model(), spec, 0).train();
  verify_placements(broken);
  const auto lookup = std::ranges::find(broken.ops, Embedding::op, &Op::type);
  ASSERT_NE(lookup, broken.ops.end());
  edit<Embedding>(lookup->attributes, [](Embedding& e) { e.rows = 7; });
  const std::string said = refusal([&] { verify_placements(broken); });
  EXPECT_NE(said.find("some rows are looked up in 'model.embed_tokens.weight"), std::string::npos) << said;
}

TEST(Placements, ALossThatIsCountedTwiceIsRefused) {
  for (const int rank : {0, 1}) {
    const Job job = compile(test::small_model(), spec_over(1, 1, 1, 2, "NO_SHARD"), rank);
    for (const Program* which : {&job.train(), &job.evaluate()}) {
      Program broken = *which;
      for (Op& op : broken.ops)
        if (op.type == "step_partials") op.attributes.set("counts_loss", std::int64_t{rank == 1});
      EXPECT_NE(refusal([&] { verify_placements(broken); }).find("the loss is"), std::string::npos);
    }
  }
}

TEST(Placements, ANormThatCountsCopiesOrLeavesSomethingOutIsRefused) {
  for (const int rank : {0, 1}) {
    const Job job = compile(test::small_model(), spec_over(1, 1, 1, 2, "NO_SHARD"), rank);
    Program broken = job.train();
    for (Op& op : broken.ops)
      if (op.type == "sum_squares" && op.name == "model.layers.0 (summed over tensor)")
        op.attributes.set("pieces",
                          rank == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{0, 40});
    const std::string said = refusal([&] { verify_placements(broken); });
    EXPECT_NE(said.find("norm counts"), std::string::npos) << said;
    EXPECT_NE(said.find("model.layers.0.input_layernorm.weight"), std::string::npos) << said;
  }
}

TEST(Placements, ABiasThatEveryRankAddsIsRefused) {
  config::Model dims = test::small_dims(1, false);
  dims.attention_output_bias = true;
  JobSpec spec = spec_over(1, 1, 1, 2, "NO_SHARD");
  for (const int rank : {0, 1}) {
    Program broken =
        compile(model::decoder(dims, {32, DType::bf16, model::Objective::loss}), spec, rank).train();
    for (Op& op : broken.ops)
      if (op.attributes.has("adds_bias")) op.attributes.set("adds_bias", std::int64_t{rank});
    const std::string said = refusal([&] { verify_placements(broken); });
    EXPECT_NE(said.find("o_proj.bias' is added"), std::string::npos) << said;
  }
}

TEST(Placements, AttentionThatTakesItsTokensForOthersIsRefused) {
  const Job job = compile(test::small_model(), spec_over(1, 1, 2, 2, "FULL_SHARD"), 2);
  struct Row {
    const char* key;
    std::vector<std::int64_t> runs;
    const char* expected;
  };
  // Rank 1 of 2 has the second and the third quarter of 32 tokens.
  const Row rows[] = {
      {"queries_at", {0, 8, 24, 8}, "and taken for 0 to 7 and 24 to 31"},
      {"queries_at", {16, 16}, "and taken for 16 to 31"},
      {"queries_at", {16, 8, 8, 8}, "and taken for 16 to 23 and 8 to 15"},
      {"keys_at", {0, 32}, "is tokens 0 to 7 and 24 to 31 and 8 to 23, and taken for 0 to 31"}};
  for (const char* type : {"attention_part", "attention_part_grad"}) {
    for (const auto& [key, runs, expected] : rows) {
      Program broken = job.train();
      for (Op& op : broken.ops)
        if (op.type == type) op.attributes.set(key, runs);
      const std::string said = refusal([&] { verify_placements(broken); });
      EXPECT_NE(said.find(expected), std::string::npos) << type << " " << key << ": " << said;
      EXPECT_NE(said.find("over context"), std::string::npos) << said;
    }
    Program twice = job.train();
    for (Op& op : twice.ops)
      if (op.type == type) op.attributes.set("accumulate", std::int64_t{1});
    const std::string said = refusal([&] { verify_placements(twice); });
    EXPECT_NE(said.find("of which it has all already"), std::string::npos) << said;
  }
}

std::string said_of(const Program& broken) {
  return refusal([&] { verify_placements(broken); });
}

TEST(Placements, AttentionInOrderToTokensThatAreNotIsRefused) {
  const JobSpec spec = by_heads(1, 2, 1, "NO_SHARD");
  Program broken = compile(model_for(spec), spec, 0).train();
  broken.token_order = {2, 2};
  EXPECT_NE(said_of(broken).find("ranks have them in 2 groups"), std::string::npos) << said_of(broken);
}

TEST(Placements, AttentionToKeysOfItsOwnRankAloneIsRefused) {
  const Job job = compile(test::small_model(), spec_over(1, 1, 2, 1, "NO_SHARD"), 0);
  Program broken = job.evaluate();
  for (std::size_t i = 0; i < broken.ops.size(); ++i)
    if (broken.ops[i].type == "all_gather" && broken.ops[i].name.ends_with(".gathered")) leave_out(broken, i);
  const std::string said = refusal([&] { verify_placements(broken); });
  EXPECT_NE(said.find("attention"), std::string::npos) << said;
  EXPECT_NE(said.find("k_rope.gathered.0' is tokens "), std::string::npos) << said;
  EXPECT_NE(said.find("over context"), std::string::npos) << said;
}

/// Planted: each swap_blocks of a job left out or cut otherwise.
TEST(Placements, BlocksThatAreNotThoseOfTheExchangeAreRefused) {
  const Program good =
      compile(model_for(by_heads(2, 2, 1, "FULL_SHARD")), by_heads(2, 2, 1, "FULL_SHARD"), 0).train();
  const std::vector<std::function<void(Program&, std::size_t)>> changes{
      [](Program& p, std::size_t i) { p.ops[i].type = "copy"; },
      [](Program& p, std::size_t i) {
        edit<SwapBlocks>(p.ops[i].attributes, [](SwapBlocks& cut) { std::swap(cut.outer, cut.inner); });
      },
      [](Program& p, std::size_t i) {
        edit<SwapBlocks>(p.ops[i].attributes, [](SwapBlocks& cut) { cut.outer *= 2, cut.inner *= 2; });
      }};
  int swaps = 0;
  for (std::size_t i = 0; i < good.ops.size(); ++i) {
    if (good.ops[i].type != SwapBlocks::op) continue;
    ++swaps;
    for (std::size_t f = 0; f < changes.size(); ++f) {
      Program bad = good;
      changes[f](bad, i);
      EXPECT_NE(refusal([&] { verify_placements(bad); }), "")
          << f << " " << describe(good, static_cast<OpId>(i));
    }
  }
  EXPECT_GT(swaps, 20);
}

TEST(Placements, HeadsThatDoNotDivideOverContextAreRefused) {
  JobSpec spec = by_heads(1, 2, 1, "NO_SHARD");
  const std::string said = refusal([&] { compile(test::small_model(), spec, 0); });
  EXPECT_NE(said.find("5 heads do not divide into whole ones over context"), std::string::npos) << said;
}

TEST(Placements, GradientsAreSummedOverTheAxesThatTheyFollowFrom) {
  model::Graph graph = test::small_model();
  const JobSpec spec = spec_over(2, 1, 1, 2, "NO_SHARD");
  const Placed placed = place(graph, Coordinate(spec.mesh, 1), spec.tensor);
  const AxisSet data = token_axes;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const bool norm = graph.parameters[p].name.find("norm") != std::string::npos;
    EXPECT_EQ(placed.summed_over[p], norm ? data | Axis::tensor : data) << graph.parameters[p].name;
  }
}

}  // namespace
}  // namespace ztrain::program::placements_test
