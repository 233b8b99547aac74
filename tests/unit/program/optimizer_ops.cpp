// The end of a step, and load: which elements a rank speaks for and steps, which copies follow, and by which
// counts biases of the choice move.

#include "program/passes/optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/hash.hpp"
#include "kernels/load/record.hpp"
#include "kernels/step/record.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::optimizer_ops_test {
namespace {

using test::small_model;
using test::spec_on;

constexpr int shards = 3;

std::vector<Job> jobs_of_all_ranks(const Strategy& strategy) {
  std::vector<Job> jobs;
  for (int rank = 0; rank < shards; ++rank)
    jobs.push_back(compile(small_model(), spec_on(1, shards, strategy), rank));
  return jobs;
}

TEST(Norm, IsTakenOfEachElementOnceAndWhereItLiesInTheSlice) {
  for (const Strategy& strategy : strategies()) {
    const std::vector<Job> jobs = jobs_of_all_ranks(strategy);
    std::int64_t counted = 0;
    for (const Job& job : jobs)
      for (const Op& op : job.train().ops) {
        if (op.type != SumSquares::op) continue;
        const std::int64_t slice = elements(job.train().tensor(op.inputs[SumSquares::gradient]).shape);
        std::int64_t end = 0;
        for (const Elements& piece : record_of<SumSquares>(op.attributes).pieces) {
          EXPECT_GE(piece.begin, end) << strategy.name << " " << op.name;
          end = piece.begin + piece.count;
          counted += piece.count;
        }
        EXPECT_LE(end, slice) << strategy.name << " " << op.name << " of rank " << job.train().rank;
      }
    EXPECT_EQ(counted, jobs[0].layout.parameter_count()) << strategy.name;
  }
}

TEST(OptimizerStep, StepsEachElementWhereItLiesInTheSlice) {
  for (const Strategy& strategy : strategies()) {
    const std::vector<Job> jobs = jobs_of_all_ranks(strategy);
    std::map<std::int64_t, std::int64_t> next;  // of a parameter, by its hash: the element that comes next
    std::int64_t stepped = 0;
    for (const Job& job : jobs)
      for (const Op& op : job.train().ops) {
        if (op.type != OptimizerStep::op) continue;
        const std::int64_t slice = elements(job.train().tensor(op.outputs[OptimizerStep::parameter]).shape);
        std::int64_t end = 0;
        for (const SteppedPiece& piece : record_of<OptimizerStep>(op.attributes).pieces) {
          EXPECT_GE(piece.begin, end) << strategy.name << " " << op.name;
          end = piece.begin + piece.count;
          stepped += piece.count;
          if (!strategy.optimizer_sharded) continue;
          EXPECT_EQ(piece.slice_begin, next[piece.stream]) << strategy.name << " " << op.name;
          next[piece.stream] += piece.count;
        }
        EXPECT_LE(end, slice) << strategy.name << " " << op.name << " of rank " << job.train().rank;
      }
    EXPECT_EQ(stepped, jobs[0].layout.parameter_count() * (strategy.optimizer_sharded ? 1 : shards))
        << strategy.name;
  }
}

/// Rank 1 of two along the tensor axis, which cuts rows of the first weight and columns of the second.
Cut second_of_a_tensor_pair() {
  MeshShape mesh;
  mesh[Axis::tensor] = 2;
  return {Coordinate(mesh, 1),
          Layout({{"rows.weight", {12, 7}, {0, 2}}, {"columns.weight", {33, 24}, {1, 2}}, {"whole", {9}, {}}},
                 {{1}}),
          find_strategy("NO_SHARD"),
          {},
          {{"unit"}},
          {}};
}

/// The largest sum of bytes of gradients that are alive at once.
std::int64_t gradients_at_once(const Program& p) {
  std::int64_t most = 0;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    std::int64_t alive = 0;
    for (const Tensor& t : p.tensors)
      if (t.category == Category::gradient && t.base == no_tensor && t.first <= id && id <= t.last)
        alive += t.bytes();
    most = std::max(most, alive);
  }
  return most;
}

/// Where no step reads the norm, units are stepped from the last to the first, between the backwards of their
/// blocks, after the tokens are counted and with nothing left that reads their parameters; and of the
/// gradients few are alive at once.
TEST(OptimizerStep, MayComeDuringBackward) {
  for (const Strategy& strategy : strategies()) {
    JobSpec spec = spec_on(1, shards, strategy, 1);
    const Program late = compile(small_model(8), spec, 0).train();
    spec.optimizer.options.during_backward = true;
    const Job job = compile(small_model(8), spec, 0);
    const Program& early = job.train();
    const auto is_backward = [](const Op& op) { return op.action.kind == ActionKind::backward; };
    const auto steps_before_last_backward = [&](const Program& p) {
      const auto last = std::find_if(p.ops.rbegin(), p.ops.rend(), is_backward);
      return std::count_if(last, p.ops.rend(), [](const Op& op) { return op.type == OptimizerStep::op; });
    };
    EXPECT_EQ(steps_before_last_backward(late), 0) << strategy.name;
    EXPECT_GE(steps_before_last_backward(early), 7) << strategy.name;
    EXPECT_LT(gradients_at_once(early), gradients_at_once(late) * 2 / 3) << strategy.name;
    EXPECT_LE(early.plan[0].live_bytes, late.plan[0].live_bytes) << strategy.name;
    int finished = 0;
    std::set<TensorId> stepped;
    for (const Op& op : early.ops) {
      finished += op.type == FinishStep::op;
      if (op.type == OptimizerStep::op) {
        EXPECT_EQ(finished, 1) << op.name;
        stepped.insert(early.storage(op.outputs[OptimizerStep::parameter]));
      }
      const bool computes = is_compute(op.action.kind);
      for (const TensorId t : op.inputs)
        EXPECT_FALSE(computes && stepped.contains(early.storage(t))) << strategy.name << " " << op.name;
    }
    EXPECT_EQ(finished, 2) << "the norm is told at the end";
  }
}

TEST(OptimizerStep, RoundsWithTheBitsOfTheWholeParametersElements) {
  const Cut cut = second_of_a_tensor_pair();
  UnitState state;
  state.step_count = cut.layout.unit(0).elements();
  OptimizerStep step;
  add_stepped_pieces(step, cut, state, 0, {});
  ASSERT_EQ(step.pieces.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const SteppedPiece& p = step.pieces[i];
    for (const LogicalRun& r : cut.layout.logical_runs(static_cast<int>(i), 1, 0, p.count))
      for (const std::int64_t e : {std::int64_t{0}, r.count - 1}) {
        const std::int64_t in_slice = r.slice_begin + e;
        EXPECT_EQ(in_slice / p.run * p.stride + p.offset + in_slice % p.run, r.logical_begin + e)
            << cut.layout.parameters()[i].name << ", element " << in_slice;
      }
  }
}

TEST(Partials, CountTheLossOfATensorGroupOnce) {
  for (const int rank : {0, 1}) {
    Cut cut = second_of_a_tensor_pair();
    cut.at = Coordinate(cut.at.mesh(), rank);
    Program program;
    program.mesh = cut.at.mesh();
    const TensorId loss = program.add({.name = "loss", .dtype = DType::f64, .shape = {1, 2}});
    JobTensors tensors;
    tensors.partials = program.add({.name = "partials", .dtype = DType::u8, .shape = {2, 64}});
    append_partials(program, cut, tensors, {loss}, {});
    EXPECT_EQ(program.ops.at(0).type, StepPartials::op);
    EXPECT_EQ(record_of<StepPartials>(program.ops.at(0).attributes).counts_loss, rank == 0);
  }
}

/// The ops of load, as "cast", "all_gather" and so on, by what they write.
std::map<TensorId, std::string> written_by_load(const Job& job) {
  std::map<TensorId, std::string> written;
  for (const Op& op : job.load().ops) written[op.outputs[0]] = op.type;
  return written;
}

TEST(Load, MakesParametersOfMastersAndSharesWhatIsKeptWhole) {
  for (const Strategy& strategy : strategies()) {
    const Job job = compile(small_model(), spec_on(1, 2, strategy), 1);  // bf16, masters and moments fp32
    const auto written = written_by_load(job);
    std::size_t expected = 0;
    for (const UnitState& s : job.tensors.units) {
      ASSERT_TRUE(s.separate_master);
      EXPECT_EQ(written.at(s.parameters.slice), "cast") << strategy.name;
      ++expected;
      std::vector<State> states{s.parameters, s.master};
      states.insert(states.end(), s.optimizer.begin(), s.optimizer.end());
      for (const State& state : states) {
        if (state.slice == state.whole) continue;
        EXPECT_EQ(written.at(state.whole), "all_gather") << strategy.name;
        ++expected;
      }
      EXPECT_EQ(s.master.slice == s.master.whole, strategy.optimizer_sharded) << strategy.name;
    }
    EXPECT_EQ(written.size(), expected) << strategy.name;
  }
}

/// Biases of the choice are fp32 beside parameters in bf16, and follow the tokens of all ranks.
TEST(Biases, ThatFollowTheTokensOfSomeRanksAreRefused) {
  config::Model dims = test::small_dims(2, false);
  dims.family = "deepseek_v3";
  dims.topk_method = "noaux_tc", dims.scoring_func = "sigmoid";
  dims.num_experts = 6, dims.num_experts_per_tok = 2, dims.moe_intermediate_size = 24,
  dims.n_shared_experts = 1;
  dims.kv_lora_rank = 8, dims.qk_nope_head_dim = 8, dims.qk_rope_head_dim = 4, dims.v_head_dim = 8;
  model::Request request{32, DType::bf16, model::Objective::loss};
  request.bias_speed = 0.01;
  JobSpec spec = spec_on(1, 2, find_strategy("FULL_SHARD"));
  spec.mesh[Axis::context] = 2;
  const Job job = compile(model::decoder(dims, request), spec, 1);
  Program broken = job.train();
  const auto find = [&](std::string_view type) { return std::ranges::find(broken.ops, type, &Op::type); };
  const auto move = find(MoveBiases::op), count = find(ExpertCounts::op);
  ASSERT_NE(move, broken.ops.end());
  EXPECT_EQ(broken.tensor(move->outputs[MoveBiases::moved]).dtype, DType::f32);
  move->inputs[MoveBiases::counts] = count->outputs[ExpertCounts::counts];
  const std::string said = test::refusal([&] { verify_placements(broken); });
  EXPECT_NE(said.find("'expert_counts.own', behind model.layers.0.mlp.gate.weight, is a part of a sum"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace ztrain::program::optimizer_ops_test
