#pragma once
// A step that is compiled from a few micro-batches (program/loops/repeat.hpp) beside the same one of which
// every micro-batch is compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "plan/rates/traffic.hpp"
#include "program/loops/repeat.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::test {

using program::JobSpec;
using program::OpId;
using program::Program;
using program::TensorId;

/// What an operand is, apart from its number and its place.
inline auto operand_of(const Program& p, TensorId id) {
  const program::Tensor& t = p.tensor(id);
  const program::Tensor& holder = p.tensor(p.storage(id));
  return std::tuple(t.dtype, t.shape, holder.persistent ? holder.name : "", holder.bytes(), holder.tier,
                    holder.category, t.offset);
}

inline void expect_same_operands(const Program& a, const std::vector<TensorId>& x, const Program& b,
                                 const std::vector<TensorId>& y) {
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(operand_of(a, x[i]), operand_of(b, y[i]));
}

inline void expect_same_steps(const Program& one, const Program& other) {
  ASSERT_EQ(one.ops.size(), other.ops.size());
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    const program::Op &a = one.ops[i], &b = other.ops[i];
    ASSERT_EQ(
        std::tuple(a.type, a.name, a.stream, a.flops, a.comm.kind, a.comm.axes.bits(), a.comm.sent_bytes),
        std::tuple(b.type, b.name, b.stream, b.flops, b.comm.kind, b.comm.axes.bits(), b.comm.sent_bytes))
        << describe(one, static_cast<OpId>(i));
    ASSERT_EQ(a.attributes, b.attributes) << describe(one, static_cast<OpId>(i));
    ASSERT_EQ(a.action, b.action) << describe(one, static_cast<OpId>(i));
    expect_same_operands(one, a.inputs, other, b.inputs);
    expect_same_operands(one, a.outputs, other, b.outputs);
  }
}

/// Also the places of all operands, and what each op waits for.
inline bool same_places(const Program& one, const Program& other) {
  const auto place = [](const Program& p, TensorId id) { return p.tensor(p.storage(id)).address; };
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    const program::Op &a = one.ops[i], &b = other.ops[i];
    if (a.after != b.after) return false;
    for (std::size_t k = 0; k < a.inputs.size(); ++k)
      if (place(one, a.inputs[k]) != place(other, b.inputs[k])) return false;
    for (std::size_t k = 0; k < a.outputs.size(); ++k)
      if (place(one, a.outputs[k]) != place(other, b.outputs[k])) return false;
  }
  return true;
}

/// Peak, bytes, traffic and every op in the order of issue. Whether places are the same too, as they are but
/// where placing five micro-batches finds another way than placing all.
inline bool expect_as_in_full(const model::Graph& graph, JobSpec spec, int rank = 0) {
  const Program some = compile(graph, spec, rank).train();
  spec.every_micro_batch = true;
  const Program full = compile(graph, spec, rank).train();
  EXPECT_EQ(full.repeat, program::Repeat{});
  for (int tier = 0; tier < program::tier_count; ++tier) {
    EXPECT_EQ(some.plan[tier].persistent_bytes, full.plan[tier].persistent_bytes);
    EXPECT_EQ(some.plan[tier].live_bytes, full.plan[tier].live_bytes);
    if (std::ranges::none_of(some.repeat.rings, [&](const auto& ring) { return some.rotates(ring); })) {
      EXPECT_EQ(some.plan[tier].transient_bytes, full.plan[tier].transient_bytes);
    } else {
      EXPECT_LE(static_cast<double>(some.plan[tier].transient_bytes),
                (1 + spec.repeat_slack) * static_cast<double>(full.plan[tier].live_bytes));
    }
  }
  const auto traffic = plan::traffic_of(some), expected = plan::traffic_of(full);
  EXPECT_EQ(traffic.size(), expected.size());
  for (std::size_t i = 0; i < std::min(traffic.size(), expected.size()); ++i)
    EXPECT_EQ(traffic[i].sizes, expected[i].sizes);
  EXPECT_EQ(some.issues(), std::ssize(full.ops));
  EXPECT_DOUBLE_EQ(flops_of(some), flops_of(full));
  const Program written_out = unrolled(some);
  EXPECT_EQ(refusal([&] { verify_rank(written_out); }), "");
  expect_same_steps(written_out, full);
  for (OpId issue = 0; issue < static_cast<OpId>(full.ops.size()); issue += 7)
    EXPECT_EQ(describe_issue(some, issue), describe(full, issue));
  return !testing::Test::HasFatalFailure() && same_places(written_out, full);
}

}  // namespace ztrain::test
