// Tests steps by whole matrices: which rank orthogonalises which matrix, from which pieces, and with which
// states and memory. The Programs of all ranks are verified.

#include "program/passes/matrix_step.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <span>

#include "base/shape.hpp"
#include "model/tensor_plan.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::matrix_steps_test {
namespace {

struct Case {
  const char* name;
  std::vector<std::pair<Axis, int>> degrees;
  const char* strategy = "FULL_SHARD";
  bool experts = false;
};
constexpr auto shard = Axis::shard, tensor = Axis::tensor, context = Axis::context;
const Case cases[] = {{"one rank", {}},
                      {"shards", {{shard, 3}}},
                      {"copies", {{shard, 3}}, "NO_SHARD"},
                      {"copies of shards", {{Axis::replicate, 2}, {shard, 2}, {context, 2}}, "zero2"},
                      {"parts", {{tensor, 4}}},
                      {"parts in shards", {{shard, 2}, {tensor, 4}}},
                      {"copies of parts", {{shard, 2}, {tensor, 2}}, "NO_SHARD"},
                      {"stages", {{Axis::pipeline, 2}, {shard, 2}, {tensor, 2}}},
                      {"experts", {{shard, 3}, {tensor, 2}}, "FULL_SHARD", true},
                      {"experts apart", {{Axis::expert, 2}, {shard, 2}}, "FULL_SHARD", true},
                      {"experts apart and parts", {{Axis::expert, 2}, {tensor, 2}}, "zero1", true}};

model::Graph graph_of(const Case& c) {
  return model::decoder(c.experts ? test::dims_with_experts() : test::dims_by_heads(),
                        {32, DType::bf16, model::Objective::loss});
}

JobSpec spec_of(const Case& c) {
  JobSpec spec = test::spec_on(1, 1, find_strategy(c.strategy));
  for (const auto& [axis, degree] : c.degrees) spec.mesh[axis] = degree;
  spec.tensor = model::decoder_tensor_plan(c.experts ? test::dims_with_experts() : test::dims_by_heads(),
                                           spec.mesh[tensor]);
  spec.token_multiple = spec.mesh[tensor];
  if (spec.mesh[Axis::pipeline] > 1) spec.schedule = find_schedule("1f1b");
  spec.optimizer.options.name = "muon";
  return spec;
}

/// Returns how often each element of a matrix is among these pieces.
std::vector<int> counts_of(std::span<const MatrixPiece> pieces, const OrthogonalMatrix& m) {
  std::vector<int> counts(at(m.rows * m.cols), 0);
  for (const MatrixPiece& p : pieces)
    for (std::int64_t e = p.first; e < p.first + p.count; ++e)
      ++counts.at(at(e / p.run * p.stride + p.offset + e % p.run));
  return counts;
}

/// Returns the elements of a unit's matrices that a rank has, alone or with the ranks that cut these
/// matrices.
std::int64_t elements_of(const Layout& layout, int unit) {
  std::int64_t sum = 0;
  for (const Segment& s : layout.unit(unit).segments) {
    const ParameterShape& p = layout.parameters()[at(s.parameter)];
    const bool apart = !p.slice.whole() && p.slice.dim < std::ssize(p.shape) - 2;
    sum += elements(p.shape) / (apart ? p.slice.parts : 1);
  }
  return sum;
}

/// Each group of ranks has each matrix once, and results go to every place that holds an element.
TEST(MatrixSteps, TakeEachMatrixOnceFromAllItsElements) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const JobSpec spec = spec_of(c);
    std::map<std::string, std::int64_t> had, taken;  // by unit, over all ranks
    double flops = 0;
    for (int rank = 0; rank < spec.mesh.ranks(); ++rank) {
      const Job job = compile(graph_of(c), spec, rank);
      double own_flops = 0;
      for (const Op& op : job.train().ops) {
        if (op.type != Orthogonalise::op) continue;
        const auto record = record_of<Orthogonalise>(op.attributes);
        const AxisSet over = AxisSet::from_bits(static_cast<std::uint32_t>(record.over));
        had[op.name] += elements_of(job.layout, op.action.part) * 840 / spec.mesh.size(over);
        own_flops += op.flops;
        for (const OrthogonalMatrix& m : record.matrices) {
          taken[op.name] += 840 * m.rows * m.cols;
          const auto* const pieces = record.pieces.data() + m.begin;
          for (const int count : counts_of({pieces, at(m.pieces)}, m)) ASSERT_EQ(count, 1) << op.name;
          for (const int count : counts_of({pieces + m.pieces, at(m.copies)}, m)) ASSERT_GE(count, 1);
        }
      }
      if (rank == 0) flops = own_flops;
      if (job.train().mesh[Axis::pipeline] == 1) {
        EXPECT_LE(own_flops, flops);
      }
    }
    EXPECT_EQ(taken, had);
    EXPECT_GE(taken.size(), 2U);
    EXPECT_NO_THROW(verify_job(graph_of(c), spec));
  }
}

TEST(MatrixSteps, KeepOneMomentOfMatricesAndTwoOfAllElse) {
  const Case& c = cases[0];
  const Job job = compile(graph_of(c), spec_of(c), 0);
  std::set<std::string> by_matrix, others;
  for (const FlatUnit& unit : job.layout.units()) {
    const UnitState& state = job.tensors.units[at(unit.unit)];
    for (const Segment& s : unit.segments) {
      const std::string& name = job.layout.parameters()[at(s.parameter)].name;
      const std::string kept = fmt::format("{} in {}", state.states.front().name, state.states.size());
      EXPECT_EQ(kept, state.rule == "muon" ? "momentum_buffer in 1" : "exp_avg in 2") << name;
      (state.rule == "muon" ? by_matrix : others).insert(name);
    }
  }
  EXPECT_EQ(by_matrix.size(), 2U * 7);
  EXPECT_TRUE(others.contains("lm_head.weight") && others.contains("model.embed_tokens.weight"));
  EXPECT_TRUE(others.contains("model.layers.0.input_layernorm.weight"));
}

}  // namespace
}  // namespace ztrain::program::matrix_steps_test
