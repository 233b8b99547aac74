// Steps whose middle micro-batches are compiled once (program/loops/repeat.hpp), beside the same steps
// compiled in full.

#include "program/loops/repeat.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "model/fp8.hpp"
#include "model/lora.hpp"
#include "model/trainable.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/job_settings.hpp"
#include "tests/support/repeat_in_full.hpp"

namespace ztrain::program::repeat_test {
namespace {

using test::refusal;
using test::small_model;
using test::spec_on;

/// A rank with the whole model, of whose micro-batches five are compiled.
bool as_in_full(const model::Graph& graph, const JobSpec& spec) {
  EXPECT_EQ(compile(graph, spec, 0).train().repeat.times,
            spec.micro_batches > 5 ? spec.micro_batches - 4 : 1);
  return test::expect_as_in_full(graph, spec);
}

TEST(Repeat, IsTheStepInFullForEveryPairOfSettings) {
  auto all = test::knobs();
  all.pop_back();  // numbers of micro-batches: here others
  int count = 0, same = 0;
  for (const bool tied : {false, true})
    for (auto [name, spec] : test::paired(all)) {
      constexpr std::array micros{6, 1, 7, 2, 8, 3, 9, 4, 11, 5};
      spec.micro_batches = micros[static_cast<std::size_t>(count++) % micros.size()];
      SCOPED_TRACE(fmt::format("{}, {} micro-batches", name, spec.micro_batches));
      same += as_in_full(small_model(3, tied), spec);
    }
  EXPECT_GT(same, 9 * count / 10) << "places differ in " << count - same << " of " << count;
}

JobSpec many(int micro_batches, const char* strategy = "FULL_SHARD", int shard = 4) {
  return spec_on(1, shard, find_strategy(strategy), micro_batches);
}

TEST(Repeat, IsTheStepInFullForManyMicroBatches) {
  for (const char* strategy : {"FULL_SHARD", "zero2", "zero1"}) {
    SCOPED_TRACE(strategy);
    EXPECT_TRUE(as_in_full(small_model(), many(64, strategy)));
  }
}

TEST(Repeat, IsTheStepInFullWhateverIsTrained) {
  const auto graph_with = [](const config::Lora& lora, const config::Model& choice, const char* fp8) {
    config::Model dims = test::small_dims(3, false);
    if (std::string_view(fp8) != "none")
      dims.hidden_size = 80, dims.intermediate_size = 96, dims.head_dim = 16;
    model::Graph graph = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
    model::add_adapters(graph, lora, 17);
    model::mark_trainable(graph, choice);
    model::use_fp8(graph, fp8);
    return graph;
  };
  config::Model all, upper, without;
  upper.trainable = {"model.layers.1.*", "model.norm.weight"};
  without.frozen = {"model.embed_tokens.*", "*.o_proj.weight"};
  const config::Lora none{}, adapters{4, 16, 0.25, {"*_proj"}};
  for (const char* strategy : {"FULL_SHARD", "zero2", "NO_SHARD"}) {
    SCOPED_TRACE(strategy);
    EXPECT_TRUE(as_in_full(graph_with(adapters, all, "none"), many(9, strategy)));
    EXPECT_TRUE(as_in_full(graph_with(none, upper, "none"), many(9, strategy)));
    EXPECT_TRUE(as_in_full(graph_with(none, without, "none"), many(9, strategy)));
    EXPECT_TRUE(as_in_full(graph_with(none, all, "tensorwise"), many(9, strategy)));
    EXPECT_TRUE(as_in_full(graph_with(none, all, "rowwise"), many(9, strategy)));
  }
}

TEST(Repeat, CompilesNoMoreForMoreMicroBatches) {
  const Program few = compile(small_model(), many(8), 0).train();
  for (const int micro_batches : {9, 64, 4096}) {
    const Program p = compile(small_model(), many(micro_batches), 0).train();
    EXPECT_EQ(p.ops.size(), few.ops.size());
    EXPECT_EQ(p.repeat.length(), few.repeat.length());
    EXPECT_EQ(p.issues(), few.issues() + std::int64_t{micro_batches - 8} * few.repeat.length());
    // Inputs, five of a micro-batch, are kept for all of them.
    EXPECT_EQ(std::ssize(p.tensors), std::ssize(few.tensors) + 5 * (micro_batches - 8));
  }
}

/// A pass may treat one micro-batch by itself, and must see it.
TEST(Repeat, StaysAwayFromPassesOverPrograms) {
  JobSpec spec = many(8);
  int seen = 0;
  spec.program_passes.emplace_back([&](Program& p) {
    for (const Op& op : p.ops) seen = std::max(seen, op.action.micro == 3 ? 1 : 0);
  });
  EXPECT_EQ(compile(small_model(), spec, 0).train().repeat.times, 1);
  EXPECT_EQ(seen, 1);
}

/// A transient tensor that the body makes anew, and the one that its copy makes.
std::pair<TensorId, TensorId> moving(const Program& p) {
  for (const Ring& ring : p.repeat.rings)
    if (const Tensor& t = p.tensor(ring.tensors[0]); !t.persistent && t.first >= p.repeat.begin)
      return {ring.tensors[0], ring.tensors[1]};
  return {no_tensor, no_tensor};
}

/// A tensor that moves on in its base, or one that does not.
TensorId with_step(const Program& p, bool moves) {
  for (std::size_t t = 0; t < p.tensors.size(); ++t)
    if ((p.tensors[t].step != 0) == moves) return static_cast<TensorId>(t);
  return no_tensor;
}

OpId that_waits(const Program& p) {
  for (OpId id = p.repeat.begin; id < p.repeat.end; ++id)
    if (!p.op(id).after.empty()) return id;
  return -1;
}

TEST(Repeat, IsRefusedWhereTheCopyIsNoCopy) {
  const Program good = compile(small_model(), many(9), 0).train();
  ASSERT_EQ(refusal([&] { verify_rank(good); }), "");
  const auto refused = [&](auto spoil) {
    Program p = good;
    spoil(p);
    return refusal([&] { verify_rank(p); });
  };
  EXPECT_NE(refused([](Program& p) { ++p.repeat.times; }).find("do not do the same"), std::string::npos);
  EXPECT_NE(refused([](Program& p) { ++p.repeat.begin; }).find("cannot be issued 5 times"),
            std::string::npos);
  EXPECT_NE(
      refused([](Program& p) { p.repeat.end = static_cast<OpId>(p.ops.size()); }).find("no copy behind"),
      std::string::npos);
  EXPECT_NE(refused([](Program& p) { p.tensor(moving(p).second).address += 256; }).find("whose slot it has"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p) { p.op(that_waits(p)).after.clear(); }).find("waits for others"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p) { p.op(p.repeat.end).attributes.set("eps", 0.5); }).find("do the same"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p) { p.tensor(with_step(p, true)).step = 0; }).find("moves on by"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p) { p.tensor(with_step(p, false)).step = 256; }).find("moves on by"),
            std::string::npos);
}

/// Those of the first input.
Ring& inputs(Program& p) {
  return p.repeat.rings.front();
}

/// An input as the body names it, and as its copy does.
std::pair<TensorId, TensorId> moving_input(const Program& p) {
  const Ring& ring = p.repeat.rings.front();
  return {ring.tensors[2], ring.tensors[2 + static_cast<std::size_t>(p.repeat.times)]};
}

/// In the copy, so that the body is what it was.
OpId that_communicates(const Program& p) {
  for (OpId id = p.repeat.begin; id < p.repeat.end; ++id)
    if (p.op(id).communicates()) return id + p.repeat.length();
  return -1;
}

TEST(Repeat, IsRefusedWhereOneThingAloneIsOtherwise) {
  const Program good = compile(small_model(), many(9), 0).train();
  const auto refused_for = [&](const char* reason, auto spoil) {
    Program p = good;
    spoil(p);
    const std::string text = refusal([&] { verify_rank(p); });
    EXPECT_NE(text.find(reason), std::string::npos) << reason << ", not: " << text;
  };
  // The copy's input is right, and those of two iterations between change places.
  refused_for("that iteration 3 reads", [](Program& p) {
    std::swap(inputs(p).tensors[3], inputs(p).tensors[4]);
    std::swap(p.tensor(inputs(p).tensors[3]).ring_index, p.tensor(inputs(p).tensors[4]).ring_index);
  });
  refused_for("is not number 3 of its ring",
              [](Program& p) { std::swap(inputs(p).tensors[3], inputs(p).tensors[4]); });
  refused_for("in a ring that does not have it",
              [](Program& p) { inputs(p).tensors.pop_back(), --inputs(p).slots; });
  refused_for("there are slots that no tensor has",
              [](Program& p) { inputs(p).slots = static_cast<int>(inputs(p).tensors.size()) + 1; });
  refused_for("do not move on as those of its copy say", [](Program& p) {
    p.repeat.attributes.push_back({p.repeat.begin, "first_token", 1});
  });
  refused_for("do not do the same", [](Program& p) { p.op(that_communicates(p)).comm.peer += 1; });
  refused_for("do not do the same", [](Program& p) { p.op(that_communicates(p)).comm.sent_bytes += 1; });
  refused_for("do not do the same", [](Program& p) { p.op(that_communicates(p)).stream = Stream::io; });
  refused_for("do not do the same", [](Program& p) { p.op(that_communicates(p)).action.micro += 1; });
  refused_for("do not do the same", [](Program& p) {
    const auto [first, copy] = moving_input(p);
    p.op(p.repeat.begin).outputs.push_back(first);
    p.op(p.repeat.end).outputs.push_back(copy);
  });
  // The copy reads what the body reads, which the executor moves on.
  refused_for("do not do the same", [](Program& p) {
    const auto [first, copy] = moving_input(p);
    for (OpId id = p.repeat.end; id < p.repeat.end + p.repeat.length(); ++id)
      std::ranges::replace(p.op(id).inputs, copy, first);
  });
  refused_for("begins in the body and is used by its copy", [](Program& p) {
    const auto [kept, image] = moving(p);
    for (OpId id = p.repeat.end; id < p.repeat.end + p.repeat.length(); ++id)
      for (auto* operands : {&p.op(id).inputs, &p.op(id).outputs})
        std::ranges::replace(*operands, image, kept);
    for (Tensor& t : p.tensors)
      if (t.base == image) t.base = kept;
  });
  refused_for("both begin before the body",
              [](Program& p) { p.tensor(moving(p).first).first = p.tensor(moving(p).second).first = 0; });
}

/// A constant may differ by micro-batch if the record of its op says so, and then by the same amount each
/// time.
TEST(Repeat, IsOfOpsWhoseConstantsMoveOnAsTheirRecordsSay) {
  model::Graph graph = small_model();
  model::add_adapters(graph, {2, 2, 0.5, {"q_proj"}}, 5);
  model::mark_trainable(graph, {});
  const Program good = compile(graph, many(9), 0).train();
  ASSERT_EQ(refusal([&] { verify_rank(good); }), "");
  ASSERT_EQ(good.repeat.times, 5);
  ASSERT_FALSE(good.repeat.attributes.empty());
  for (const AttributeStep& step : good.repeat.attributes) {
    EXPECT_EQ(good.op(step.op).type, "dropout");
    EXPECT_EQ(step.key, "first_token");
    EXPECT_GT(step.by, 0);
  }
  const auto refused_by = [&](const char* key, std::int64_t more) {
    Program p = good;
    Attributes& copy = p.op(p.repeat.attributes.front().op + p.repeat.length()).attributes;
    copy.set(key, copy.integer(key) + more);
    return refusal([&] { verify_rank(p); });
  };
  EXPECT_NE(refused_by("first_token", 5).find("do not move on as those of its copy"), std::string::npos);
  EXPECT_NE(refused_by("first_token", 4).find("do not do the same"), std::string::npos)
      << "no whole number of tokens each time";
  EXPECT_NE(refused_by("key", 5).find("do not do the same"), std::string::npos);
}

TEST(Repeat, IsRefusedWhereRanksRepeatOtherwise) {
  const Job job = compile(small_model(), many(9), 0);
  Program other = job.train();
  EXPECT_EQ(refusal([&] { verify_no_deadlock({&job.train(), &other}, {{0, 1}, {2, 3}}); }), "");
  other.repeat.times = 6;
  const std::string text = refusal([&] { verify_no_deadlock({&job.train(), &other}, {{0, 1}, {2, 3}}); });
  EXPECT_NE(text.find("5 times"), std::string::npos) << text;
  EXPECT_NE(text.find("6 times"), std::string::npos) << text;
}

/// All but what attributes hold, where a slice of a state that is kept whole begins, and which rank it is.
void expect_one_class(const Program& one, const Program& other) {
  ASSERT_EQ(one.ops.size(), other.ops.size());
  EXPECT_EQ(one.repeat, other.repeat);
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    const Op &a = one.ops[i], &b = other.ops[i];
    ASSERT_EQ(std::tuple(a.type, a.stream, a.action, a.comm.kind, a.comm.axes, a.comm.peer, a.comm.sent_bytes,
                         a.after, a.inputs, a.outputs),
              std::tuple(b.type, b.stream, b.action, b.comm.kind, b.comm.axes, b.comm.peer, b.comm.sent_bytes,
                         b.after, b.inputs, b.outputs))
        << describe(other, static_cast<OpId>(i)) << " of rank " << other.rank;
  }
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  const auto offset = [&](const Tensor& t) {
    return t.base != no_tensor && one.tensor(t.base).persistent ? 0 : t.offset;
  };
  for (std::size_t t = 0; t < one.tensors.size(); ++t) {
    const Tensor &a = one.tensors[t], &b = other.tensors[t];
    ASSERT_EQ(std::tuple(a.dtype, a.shape, a.base, offset(a), a.step, a.first, a.last, a.address),
              std::tuple(b.dtype, b.shape, b.base, offset(b), b.step, b.first, b.last, b.address))
        << a.name << " of rank " << other.rank;
  }
}

TEST(RankClasses, DifferInWhatAttributesHoldAlone) {
  config::Model wide = test::small_dims(3, true);
  wide.hidden_size = 80, wide.intermediate_size = 96, wide.head_dim = 16;
  const model::Graph plain = small_model(3);
  model::Graph codes = model::decoder(wide, {32, DType::bf16, model::Objective::loss});
  model::use_fp8(codes, "tensorwise");
  for (const bool coded : {false, true})
    for (const Strategy& strategy : strategies())
      for (const int inner : {1, 2}) {
        JobSpec spec = spec_on(2, 4, strategy, 7);
        spec.mesh.inner_of(Axis::shard) = inner;
        spec.sharding.secondary_shards = inner > 1;
        const model::Graph& graph = coded ? codes : plain;
        const auto classes = rank_classes(graph, spec);
        EXPECT_EQ(classes.size(), static_cast<std::size_t>(coded ? 4 : inner));
        for (const std::vector<int>& ranks : classes) {
          const Job first = compile(graph, spec, ranks.front());
          for (const int rank : ranks) {
            const Job other = compile(graph, spec, rank);
            for (const Program* p : first.programs.all()) expect_one_class(*p, other.programs.at(p->name));
          }
        }
      }
}

}  // namespace
}  // namespace ztrain::program::repeat_test
