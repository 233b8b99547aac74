// Overlap of tensor communication: what stands in the place of collectives, what the parts wait for, and
// what the proof refuses.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/linear/record.hpp"
#include "program/ir/order.hpp"
#include "program/ops/emit.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/coded_job.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::overlap_test {
namespace {

using test::refusal;

constexpr int ranks = 4;
/// Of two layers and two micro-batches. Forward gathers before the two joined products of a layer, and
/// reduces behind the two others; backward the other way round. Where the residual stream begins and ends is
/// no product that goes by rows.
constexpr int gathers = 2 * 2 * 4, reductions = 2 * 2 * 4;

/// Of equal parts.
config::Model dims() {
  config::Model m = test::small_dims(2, false);
  m.num_attention_heads = 8, m.num_key_value_heads = 4, m.vocab_size = 256;
  return m;
}
model::Graph small_model() {
  return model::decoder(dims(), {32, DType::bf16, model::Objective::loss});
}

JobSpec spec_with(bool overlap, int recompute = 0) {
  JobSpec spec = test::spec_on(1, 1, find_strategy("NO_SHARD"));
  spec.mesh[Axis::tensor] = ranks;
  spec.tensor = model::decoder_tensor_plan(dims(), ranks);
  spec.overlap_tensor = overlap;
  spec.recompute.every = recompute;
  return spec;
}

Program step_with(bool overlap, int rank, int recompute = 0) {
  return compile(small_model(), spec_with(overlap, recompute), rank).train();
}

bool is_view(const Program& p, TensorId t) {
  return p.tensor(t).base != no_tensor;
}

/// Bytes that a step sends over `tensor`, and how often by each kind of communication on the stream of
/// conversions.
struct Sent {
  std::int64_t bytes = 0;
  std::map<CommKind, int> calls;
};
Sent sent_by(const Program& p) {
  Sent sent;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    const Op& op = p.op(id);
    if (op.comm.axes != AxisSet(Axis::tensor) || op.stream != Stream::exchange) continue;
    sent.bytes += op.comm.sent_bytes * p.times(id);
    sent.calls[op.comm.kind] += p.times(id);
  }
  return sent;
}

TEST(Overlap, CutsTheCollectivesBesideProducts) {
  for (const int recompute : {0, 1}) {
    const Program whole = step_with(false, 1, recompute), parts = step_with(true, 1, recompute);
    Sent before = sent_by(whole), after = sent_by(parts);
    EXPECT_EQ(after.bytes, before.bytes);
    EXPECT_DOUBLE_EQ(flops_of(parts), flops_of(whole));
    // What is recomputed gathers again, and reduces but for what nothing reads.
    const int again = recompute * 2 * 2 * 2, summed = recompute * 2 * 2;
    const int cut = before.calls[CommKind::all_gather] - after.calls[CommKind::all_gather];
    const int added = before.calls[CommKind::reduce_scatter] - after.calls[CommKind::reduce_scatter];
    EXPECT_EQ(cut, gathers + again);
    EXPECT_EQ(added, reductions + summed);
    EXPECT_EQ(after.calls[CommKind::shift], (cut + added) * (ranks - 1));
  }
}

/// A part of a product waits for the shift that brings its rows, and for none that comes later: the first is
/// of the rank's own rows. A part that is sent is sent before the next is made.
TEST(Overlap, PartsWaitForTheirOwnRowsAlone) {
  const Program p = step_with(true, 2);
  int first = 0, later = 0, sends = 0;
  std::map<TensorId, OpId> shifted;  // by tensor that a shift writes
  std::map<TensorId, OpId> taken;    // by tensor: the shift that brought the part that was taken last
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    const Op& op = p.op(id);
    if (op.comm.kind == CommKind::shift) {
      shifted[op.outputs[0]] = id;
      const Op& before = p.op(id - 1);
      if (before.outputs[0] == op.inputs[0] && p.tensor(op.inputs[0]).base != no_tensor) ++sends;
      continue;
    }
    if (op.type != Linear::op && op.type != LinearGradInput::op) continue;
    const TensorId rows = op.inputs[0];
    if (p.tensor(rows).base == no_tensor) continue;
    const auto it = shifted.find(rows);
    const OpId newest = it == shifted.end() ? no_op : it->second;
    // In the order in which they arrive.
    const auto [before, fresh] = taken.try_emplace(p.storage(rows), newest);
    if (fresh) {
      EXPECT_EQ(newest, no_op) << describe(p, id);
    } else if (newest != no_op) {
      EXPECT_GT(newest, std::exchange(before->second, newest)) << describe(p, id);
    }
    for (const OpId waited : op.after) {
      const Op& other = p.op(waited);
      if (other.comm.kind != CommKind::shift || p.storage(other.outputs[0]) != p.storage(rows)) continue;
      EXPECT_LE(waited, newest) << describe(p, id) << " waits for " << describe(p, waited);
    }
    ++(newest == no_op ? first : later);
  }
  EXPECT_EQ(later, gathers * (ranks - 1));
  EXPECT_EQ(first, gathers + reductions * ranks) << "of own rows, and of what is reduced";
  EXPECT_EQ(sends, reductions * (ranks - 1));
}

/// What is sent keeps its bytes until the parts are made: none of them waits for the last send.
TEST(Overlap, NoPartWaitsForBytesOfWhatIsSent) {
  const Program p = step_with(true, 0);
  int checked = 0;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    const Op& op = p.op(id);
    if (op.type != OwnRows::op) continue;
    const TensorId sent = op.inputs[0], storage = p.storage(op.outputs[0]);
    OpId last = id;
    for (OpId later = id + 1; later < static_cast<OpId>(p.ops.size()); ++later)
      for (const TensorId t : p.op(later).inputs)
        if (t != storage && p.storage(t) == storage && p.op(later).type != OwnRows::op) last = later;
    EXPECT_GE(p.tensor(p.storage(sent)).last, last) << describe(p, id);
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

/// So one of them stands for all in the joint proof.
TEST(Overlap, RanksDifferInPlacesAlone) {
  const Program first = step_with(true, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    const Program other = step_with(true, rank);
    ASSERT_EQ(other.ops.size(), first.ops.size());
    for (std::size_t i = 0; i < first.ops.size(); ++i) {
      const Op &a = first.ops[i], &b = other.ops[i];
      EXPECT_EQ(a.type, b.type);
      EXPECT_EQ(a.after, b.after) << describe(first, static_cast<OpId>(i));
      EXPECT_EQ(a.comm.peer, b.comm.peer);
      EXPECT_EQ(a.comm.sent_bytes, b.comm.sent_bytes);
    }
    EXPECT_EQ(other.plan[0].transient_bytes, first.plan[0].transient_bytes);
  }
}

/// Of 8-bit codes. With a scale for each row gathers stay, since backward reads what was not coded.
TEST(Overlap, CutsWhatStandsBesideProductsOfCodes) {
  for (const std::string scaling : {"tensorwise", "rowwise"}) {
    const auto compiled = [&](bool overlap, std::int64_t tokens) {
      JobSpec spec = test::in_codes(1, 1, 2, scaling.c_str());
      spec.overlap_tensor = overlap;
      const model::Graph graph =
          model::decoder(test::dims_of_codes(), {tokens, DType::bf16, model::Objective::loss});
      EXPECT_EQ(refusal([&] { verify_job(graph, spec); }), "");
      return compile(graph, spec, 1).train();
    };
    const Program whole = compiled(false, 64), parts = compiled(true, 64);
    Sent before = sent_by(whole), after = sent_by(parts);
    // In the place of 32 rows of 48 values of 2 bytes their codes go, behind one number that ranks agree on.
    const int gathered = scaling == "tensorwise" ? 2 * 2 * 4 : 0;
    EXPECT_EQ(after.bytes, before.bytes - gathered * (32 * 48 - 4)) << scaling;
    EXPECT_DOUBLE_EQ(flops_of(parts), flops_of(whole));
    EXPECT_EQ(after.calls[CommKind::all_gather], before.calls[CommKind::all_gather]);
    const int added = before.calls[CommKind::reduce_scatter] - after.calls[CommKind::reduce_scatter];
    EXPECT_EQ(added, 2 * 2 * 4) << scaling << ": of two layers and two micro-batches, four each";
    EXPECT_EQ(after.calls[CommKind::shift], added + gathered);
    int scaled = 0;
    for (const Op& op : parts.ops)
      if ((op.type == LinearFp8::op || op.type == LinearFp8GradInput::op) && is_view(parts, op.inputs[0])) {
        const Tensor &codes = parts.tensor(op.inputs[0]), &scales = parts.tensor(op.inputs[1]);
        EXPECT_EQ(scales.shape[0], scaling == "rowwise" ? codes.shape[0] : 1);
        EXPECT_EQ(scales.offset * codes.shape[1], scaling == "rowwise" ? codes.offset * 4 : 0);
        ++scaled;
      }
    EXPECT_EQ(scaled, 2 * (added + gathered));
    // Parts of 8 rows would not be aligned.
    EXPECT_EQ(sent_by(compiled(true, 16)).calls[CommKind::shift], 0);
  }
}

TEST(Overlap, WholeJobsAreProven) {
  for (const int recompute : {0, 1})
    EXPECT_EQ(refusal([&] { verify_job(small_model(), spec_with(true, recompute)); }), "");
}

using Change = std::function<void(Program&, Op&)>;

/// Planted in each op that it fits.
struct Fault {
  const char* name;
  bool (*fits)(const Program&, const Op&);
  Change change;
};

bool sends_rows(const Program& p, const Op& op) {
  return op.comm.kind == CommKind::shift && is_view(p, op.outputs[0]) && !is_view(p, op.inputs[0]);
}
bool sends_part(const Program& p, const Op& op) {
  return op.comm.kind == CommKind::shift && is_view(p, op.inputs[0]);
}
bool is_part(const Program& p, const Op& op) {
  return (op.type == Linear::op || op.type == LinearGradInput::op) && is_view(p, op.inputs[0]);
}
/// Another part of the same rows.
void move_on(Program& p, TensorId& t) {
  Tensor other = p.tensor(t);
  other.offset = (other.offset + other.bytes()) % p.tensor(other.base).bytes();
  t = p.add(std::move(other));
}

std::vector<Fault> faults() {
  return {
      {"rows from another rank", sends_rows, [](Program&, Op& op) { op.comm.peer = op.comm.peer % 3 + 1; }},
      {"rows in another place", sends_rows, [](Program& p, Op& op) { move_on(p, op.outputs[0]); }},
      {"a part to another rank", sends_part, [](Program&, Op& op) { op.comm.peer = op.comm.peer % 3 + 1; }},
      {"another part", sends_part, [](Program& p, Op& op) { move_on(p, op.inputs[0]); }},
      {"a part in another slot", sends_part, [](Program& p, Op& op) { move_on(p, op.outputs[0]); }},
      {"own rows in another place", [](const Program&, const Op& op) { return op.type == OwnRows::op; },
       [](Program& p, Op& op) { move_on(p, op.outputs[0]); }},
      {"the sum of another part", [](const Program&, const Op& op) { return op.type == SumOfRanks::op; },
       [](Program& p, Op& op) { move_on(p, op.inputs[0]); }},
      {"no sum", [](const Program&, const Op& op) { return op.type == SumOfRanks::op; },
       [](Program&, Op& op) { op.type = Copy::op, op.attributes = {}, op.inputs.pop_back(); }},
      {"a product of other rows", is_part, [](Program& p, Op& op) { move_on(p, op.inputs[0]); }},
      {"a product to other rows", is_part, [](Program& p, Op& op) { move_on(p, op.outputs[0]); }}};
}

TEST(Overlap, FaultsAreRefused) {
  const Program good = step_with(true, 1);
  std::map<std::string, int> planted;
  for (const Fault& fault : faults())
    for (std::size_t i = 0; i < good.ops.size(); ++i) {
      if (!fault.fits(good, good.ops[i])) continue;
      Program bad = good;
      fault.change(bad, bad.ops[i]);
      EXPECT_NE(refusal([&] { verify_placements(bad); }), "")
          << fault.name << ": " << describe(good, static_cast<OpId>(i));
      ++planted[fault.name];
    }
  EXPECT_EQ(planted.size(), faults().size());
}

/// Each slot of a sum has something, but not what belongs there.
TEST(Overlap, PartsInEachOthersSlotsAreRefused) {
  const Program good = step_with(true, 1);
  std::map<TensorId, std::size_t> first;  // by tensor of slots
  int planted = 0;
  for (std::size_t i = 0; i < good.ops.size(); ++i) {
    const Op& op = good.ops[i];
    if (!sends_part(good, op)) continue;
    const auto [it, fresh] = first.try_emplace(good.storage(op.outputs[0]), i);
    if (fresh) continue;
    Program bad = good;
    std::swap(bad.ops[i].outputs, bad.ops[it->second].outputs);
    EXPECT_NE(refusal([&] { verify_placements(bad); }), "") << describe(good, static_cast<OpId>(i));
    ++planted;
  }
  EXPECT_EQ(planted, reductions * (ranks - 2));
}

}  // namespace
}  // namespace ztrain::program::overlap_test
