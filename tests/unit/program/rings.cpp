// The joint proof of messages that go round a ring, and of exchanges among all; what attention that goes
// round a ring holds, what it goes beside, how its work is shared, and what the check of placements refuses.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/strategy.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/elementwise/record.hpp"
#include "model/lora.hpp"
#include "model/trainable.hpp"
#include "program/ops/emit.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/place.hpp"
#include "tests/support/joint_ranks.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::test::rings_test {
namespace {

using program::CommKind;
using program::JobSpec;
using program::Op;
using program::OpId;
using program::Program;
using program::RingPart;

/// Shifts ('1' to '9': by so much) and exchanges ('x') of a ring of 16, in this order; of one rank in
/// another.
std::string ring(const std::string& order, const std::string& of_rank_7) {
  Ranks ranks(16, Axis::context);
  for (int rank = 0; rank < 16; ++rank) {
    Builder& b = ranks[rank];
    const TensorId in = b.persistent("in", 32), out = b.persistent("out", 32);
    for (const char what : rank == 7 ? of_rank_7 : order) {
      if (what == 'x')
        emit_all_to_all(b.program, "exchange", in, out, Axis::context, {});
      else
        emit_shift(b.program, "shift", in, out, Axis::context, what - '0', {});
    }
  }
  return ranks.verdict();
}

TEST(Rings, OfShiftsAndExchangesAreProven) {
  EXPECT_EQ(ring("1111111111111111", "1111111111111111"), "accepted");
  EXPECT_EQ(ring("x12x", "x12x"), "accepted");
}

TEST(Rings, OfWhichOneRankIsOutOfOrderAreRefused) {
  expect_says(ring("12", "21"), {"shift of 32 fp32 into 32 fp32 by 1", "by 2", "rank"});
  expect_says(ring("1x", "x1"), {"shift of 32", "all_to_all of 32"});
  expect_says(ring("11", "1"), {"rank 7"});
}

JobSpec ring_spec(int ranks) {
  JobSpec spec = spec_on(1, 1, config::find_strategy("FULL_SHARD"), 1);
  spec.mesh[Axis::context] = ranks;
  spec.context = model::ContextMethod::ring;
  return spec;
}
program::Job ring_job(int ranks, int rank, int recompute = 0) {
  JobSpec spec = ring_spec(ranks);
  spec.recompute.every = recompute;
  return program::compile(small_model(), spec, rank);
}

/// Beside its own a rank holds the keys that it attends to and those that arrive, whatever is recomputed; and
/// of their gradients those that it makes, its own, those that arrive and those that leave.
TEST(RingAttention, HoldsTheKeysOfTwoOtherRanks) {
  for (const int recompute : {0, 1}) {
    const program::Job job = ring_job(8, 3, recompute);
    const program::Program& p = job.train();
    for (const auto& [name, most] : {std::pair{".attention.k.", 2},
                                     {".attention.v.", 2},
                                     {".attention.dk.", 4},
                                     {".attention.dv.", 4}}) {
      int found = 0;
      for (program::OpId id = 0; id < static_cast<program::OpId>(p.ops.size()); ++id) {
        int alive = 0;
        for (const program::Tensor& t : p.tensors)
          alive += t.name.find(name) != std::string::npos && t.first <= id && id <= t.last && t.first >= 0;
        found = std::max(found, alive);
      }
      EXPECT_EQ(found, most) << name << " recompute " << recompute;
    }
  }
}

/// Shifts of keys, and of their gradients, are issued before the attention that they go beside, which waits
/// for none of them.
TEST(RingAttention, WaitsForNoShiftThatGoesBesideIt) {
  const program::Job job = ring_job(8, 3);
  const program::Program& p = job.train();
  std::map<std::string, int> beside;
  std::vector<program::OpId> issued;
  for (program::OpId id = 0; id < static_cast<program::OpId>(p.ops.size()); ++id) {
    const program::Op& op = p.op(id);
    if (op.comm.kind == program::CommKind::shift) issued.push_back(id);
    if (!op.type.starts_with("attention_part")) continue;
    for (const program::OpId after : op.after)
      EXPECT_TRUE(issued.empty() || after < issued.front())
          << describe(p, id) << " waits for " << describe(p, after);
    beside[op.type] += static_cast<int>(issued.size());
    issued.clear();
  }
  EXPECT_EQ(beside["attention_part"], 2 * 2 * 7) << "keys and values, of two layers";
  EXPECT_EQ(beside["attention_part_grad"], 2 * 2 * (7 + 6) + 2)
      << "and gradients; one layer's come home before";
}

/// Pairs of a query and a key that it sees, where every document is so many tokens.
std::int64_t pairs(const RingPart& part, std::int64_t document) {
  std::int64_t count = 0;
  for (const TokenRun& queries : part.queries_at)
    for (std::int64_t q = queries.token; q < queries.token + queries.count; ++q)
      for (const TokenRun& keys : part.keys_at)
        count += std::max<std::int64_t>(
            0, std::min(keys.token + keys.count, q + 1) - std::max(keys.token, q / document * document));
  return count;
}

/// By type of op: the parts of each layer.
std::map<std::string, std::vector<RingPart>> parts_of(
    int ranks, int rank, model::ContextMethod method = model::ContextMethod::ring) {
  std::map<std::string, std::vector<RingPart>> found;
  JobSpec spec = ring_spec(ranks);
  spec.context = method;
  for (const Op& op : compile(small_model(), spec, rank).train().ops)
    if (op.type == program::AttentionPart::op || op.type == program::AttentionPartGrad::op)
      found[op.type].push_back(record_of<RingPart>(op.attributes));
  return found;
}

/// 32 tokens: of one sequence every part of every rank is the same work, but that own queries see themselves
/// too; of several, dealt or cut, that of all parts together is.
TEST(RingAttention, IsTheSameWorkOnEveryRank) {
  for (const int ranks : {2, 4, 8})
    for (int rank = 0; rank < ranks; ++rank)
      for (const auto& [type, parts] : parts_of(ranks, rank))
        for (const std::int64_t sequence : {32, 16, 8, 4, 1}) {
          SCOPED_TRACE(::testing::Message()
                       << type << " of rank " << rank << " of " << ranks << ", sequences of " << sequence);
          ASSERT_EQ(parts.size(), 2U * static_cast<unsigned>(ranks)) << "two layers";
          std::vector<std::int64_t> work;
          for (const RingPart& part : parts) work.push_back(pairs(part, sequence));
          EXPECT_EQ(std::accumulate(work.begin(), work.end(), std::int64_t{0}), 32 * (sequence + 1) / ranks);
          if (sequence < 32) continue;
          const auto [least, most] = std::ranges::minmax(work);
          EXPECT_EQ(most - least, 16 / ranks);
        }
}

/// Of gathered keys there is one part.
TEST(GatheredAttention, IsTheSameWorkOnEveryRank) {
  for (const int ranks : {2, 4, 8})
    for (int rank = 0; rank < ranks; ++rank)
      for (const auto& [type, parts] : parts_of(ranks, rank, model::ContextMethod::gather)) {
        ASSERT_EQ(parts.size(), 2U) << type << " of two layers";
        for (const std::int64_t sequence : {32, 16, 8, 4, 1})
          for (const RingPart& part : parts)
            EXPECT_EQ(pairs(part, sequence), 16 * (sequence + 1) / ranks)
                << type << " of rank " << rank << " of " << ranks << ", sequences of " << sequence;
      }
}

/// Of ranks that exchange heads each group has a chunk from either end; without a ring tokens are in order.
TEST(RingAttention, AroundRanksThatExchangeHeadsIsInZigZagOrder) {
  MeshShape mesh;
  mesh[Axis::ring] = 4, mesh[Axis::context] = 2;
  EXPECT_EQ(program::token_order(mesh, model::ContextMethod::heads), TokenOrder(8, 4));
  mesh[Axis::ring] = 1;
  EXPECT_EQ(program::token_order(mesh, model::ContextMethod::heads), TokenOrder(2, 1));
}

/// Each query sees each of its keys once, whatever the lengths of documents.
TEST(RingAttention, LeavesNoPairOut) {
  std::map<std::int64_t, std::int64_t> found;
  const auto documents = {3, 5, 12, 27};
  for (int rank = 0; rank < 4; ++rank) {
    const auto parts = parts_of(4, rank);
    for (const RingPart& part : parts.at("attention_part"))
      for (const std::int64_t document : documents) found[document] += pairs(part, document);
  }
  for (const std::int64_t document : documents) {
    std::int64_t expected = 0;
    for (std::int64_t token = 0; token < 32; ++token) expected += token % document + 1;
    EXPECT_EQ(found[document], 2 * expected) << "two layers, documents of " << document;
  }
}

std::string said_of(const Program& broken) {
  return refusal([&] { verify_placements(broken); });
}

/// What the last shift before an op made this tensor of, if a shift made it.
std::optional<TensorId> source_of_shift(const Program& p, std::size_t before, TensorId made) {
  for (std::size_t i = before; i-- > 0;)
    if (std::ranges::find(p.ops[i].outputs, made) != p.ops[i].outputs.end())
      return p.ops[i].comm.kind == CommKind::shift ? std::optional(p.ops[i].inputs[0]) : std::nullopt;
  return std::nullopt;
}

/// Other faults are among those of every communication (placements.cpp).
TEST(RingAttention, OfWrongTokensOrSumsIsRefused) {
  for (const int rank : {0, 3}) {
    const Program train = ring_job(4, rank).train();
    std::map<std::string, int> planted;
    const auto refuses = [&](std::size_t i, const char* what, const auto& change) {
      Program broken = train;
      change(broken, broken.ops[i]);
      const std::string said = said_of(broken);
      EXPECT_NE(said.find("over context"), std::string::npos)
          << what << " " << describe(train, static_cast<OpId>(i)) << ": " << said;
      ++planted[what];
    };
    for (std::size_t i = 0; i < train.ops.size(); ++i) {
      const Op& op = train.ops[i];
      if (op.comm.kind == CommKind::shift)
        refuses(i, "the other way", [](Program&, Op& o) { o.comm.peer = 4 - o.comm.peer; });
      if (op.type.starts_with("attention_part")) {
        for (const char* key : {"keys_at", "queries_at"}) {
          const auto first = op.attributes.get<std::vector<std::int64_t>>(key);
          const auto taken_for = [&](const std::vector<TokenRun>& runs) {
            return [key, runs](Program&, Op& o) {
              std::vector<std::int64_t> flat;
              for (const TokenRun& run : runs) flat.insert(flat.end(), {run.token, run.count});
              o.attributes.set(key, flat);
            };
          };
          const std::vector<TokenRun> runs = record_of<RingPart>(op.attributes).*
                                             (key[0] == 'k' ? &RingPart::keys_at : &RingPart::queries_at);
          refuses(i, "tokens as they would be in order", taken_for(TokenOrder(4, 1).part(32, 4, rank)));
          refuses(i, "tokens of another", taken_for(TokenOrder(4, 4).part(32, 4, first[0] == 0 ? 2 : 0)));
          refuses(i, "a chunk for the next", taken_for({{runs[0].token + 4, 4}, runs.back()}));
          refuses(i, "the other chunk first", taken_for({runs.back(), {runs[0].token, 4}}));
        }
        refuses(i, "a part left out",
                [i](Program& p, Op&) { p.ops.erase(p.ops.begin() + static_cast<std::ptrdiff_t>(i)); });
        if (op.attributes.integer("accumulate") != 0)
          refuses(i, "a part twice", [i](Program& p, Op&) {
            p.ops.insert(p.ops.begin() + static_cast<std::ptrdiff_t>(i), Op(p.ops[i]));
          });
      }
      if (op.type != "add" || !op.name.ends_with("attention")) continue;
      refuses(i, "a sum left out", [](Program&, Op& o) {
        o.type = "copy";
        o.inputs.pop_back();
      });
      for (const std::size_t operand : {Add::x, Add::addend}) {
        const std::optional<TensorId> sent = source_of_shift(train, i, op.inputs[operand]);
        if (!sent) continue;
        for (const bool turned : {false, true})
          refuses(i, "a sum with what has not been sent on", [&](Program&, Op& o) {
            o.inputs[operand] = *sent;
            if (turned) std::swap(o.inputs[Add::x], o.inputs[Add::addend]);
          });
      }
    }
    EXPECT_EQ(planted.size(), 9u);
  }
}

/// Masks of dropout are drawn by tokens, of which a rank has two runs, or a part of these under sequence
/// parallelism.
TEST(RingAttention, BesideMasksOfOtherTokensIsRefused) {
  for (const int tensor : {1, 2}) {
    JobSpec spec = ring_spec(4);
    spec.mesh[Axis::shard] = 2;
    spec.mesh[Axis::tensor] = tensor;
    if (tensor > 1) spec.tensor = model::decoder_tensor_plan(small_dims(2, false), tensor);
    model::Graph graph = small_model();
    model::add_adapters(graph, {2, 2, 0.5, {"q_proj"}}, 5);
    model::mark_trainable(graph, {});
    const Program train = compile(graph, spec, tensor).train();
    int planted = 0;
    for (std::size_t i = 0; i < train.ops.size(); ++i)
      for (const char* key : {"first_token", "gap_at", "gap"}) {
        if (train.ops[i].type != "dropout" || !train.ops[i].attributes.has(key)) continue;
        Program broken = train;
        broken.ops[i].attributes.set(key, train.ops[i].attributes.integer(key) + 1);
        const std::string said = said_of(broken);
        EXPECT_NE(said.find("is masked as"), std::string::npos) << key << ": " << said;
        ++planted;
      }
    EXPECT_GT(planted, 4);
  }
}

}  // namespace
}  // namespace ztrain::test::rings_test
