// Where offload puts tensors, ops and copies, and that each way to get them wrong is refused before a run.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "kernel_interface/step_scalars.hpp"
#include "kernels/optimizer/record.hpp"
#include "program/jobs/job_base.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/offload.hpp"
#include "program/tiers/stays.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::offload_test {
namespace {

using test::refusal;

constexpr Home away{Tier::host, 1};

OffloadOptions all_to(Tier tier, StepOn step = StepOn::automatic) {
  const Home home{tier, 1};
  return {home, home, home, home, home, step};
}

JobSpec spec_with(const OffloadOptions& options, const char* strategy = "FULL_SHARD", int micros = 2) {
  JobSpec spec = test::spec_on(1, 2, find_strategy(strategy), micros);
  spec.offload = options;
  return spec;
}

Job job_with(const OffloadOptions& options, const char* strategy = "FULL_SHARD") {
  return compile(test::small_model(4), spec_with(options, strategy), 0);
}

Tier tier_of(const Program& p, TensorId id) {
  return p.tensor(p.storage(id)).tier;
}
bool is_copy(const Op& op) {
  return op.action.kind == ActionKind::fetch || op.action.kind == ActionKind::evict;
}
bool evicts(const Program& p, const Op& op, Category category) {
  return op.action.kind == ActionKind::evict && p.tensor(op.inputs[0]).category == category;
}

std::int64_t kept(const Program& p, Tier tier) {
  return p.plan[static_cast<std::size_t>(tier)].persistent_bytes;
}

TEST(Spread, TakesAShareOfTheSizesEvenly) {
  EXPECT_EQ(spread({1, 1, 1, 1, 1}, 0.4), (std::vector<bool>{false, true, false, true, false}));
  EXPECT_EQ(spread({1, 1, 1, 1}, 0.5), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(spread({3, 1, 2}, 1), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(spread({10, 1, 1}, 0.1), (std::vector<bool>{false, true, false}));
}

TEST(Offload, EachKindLeavesTheDeviceByItself) {
  const Program plain = job_with({}).train();
  const auto less = [&](Home OffloadOptions::*kind) {
    OffloadOptions options;
    options.*kind = away;
    const Program p = job_with(options).train();
    EXPECT_GT(kept(p, Tier::host) + p.plan[1].transient_bytes, 0);
    return std::pair(kept(plain, Tier::device) - kept(p, Tier::device),
                     plain.plan[0].live_bytes - p.plan[0].live_bytes);
  };
  // 4 blocks, embedding, and norm with head: bf16 parameters, fp32 master weights and two moments.
  const std::int64_t states = kept(plain, Tier::device);
  const auto [parameters, p_live] = less(&OffloadOptions::parameters);
  const auto [master, m_live] = less(&OffloadOptions::master);
  const auto [moments, o_live] = less(&OffloadOptions::optimizer);
  EXPECT_EQ(master, 2 * parameters);
  EXPECT_EQ(moments, 2 * master);
  EXPECT_GT(parameters + master + moments, states * 9 / 10) << "inputs and scalars are what is left";
  EXPECT_GT(less(&OffloadOptions::gradients).second, 0);
  EXPECT_GT(less(&OffloadOptions::activations).second, 0);
}

TEST(Offload, AFractionIsThatOfWholeUnits) {
  OffloadOptions half;
  half.optimizer = {Tier::host, 0.5};
  OffloadOptions all;
  all.optimizer = away;
  const auto on_host = [](const OffloadOptions& o) {
    return static_cast<double>(kept(job_with(o).train(), Tier::host));
  };
  EXPECT_NEAR(on_host(half) / on_host(all), 0.5, 0.2);
}

TEST(Offload, AFractionOfActivationsIsThatOfWholeBlocks) {
  const auto on_host = [](double fraction) {
    OffloadOptions options;
    options.activations = {Tier::host, fraction};
    return static_cast<double>(
        job_with(options).train().plan[static_cast<std::size_t>(Tier::host)].live_bytes);
  };
  EXPECT_NEAR(on_host(0.5) / on_host(1), 0.5, 0.25);
}

/// By unit: whether a state that its optimizer steps has its home elsewhere than on the device.
std::vector<bool> units_away(const Program& p, const std::vector<Home>& homes) {
  std::vector<bool> leaves(p.unit_elements.size(), false);
  for (const Home& home : homes) {
    const std::vector<bool> chosen = spread(p.unit_elements, home.fraction);
    for (std::size_t unit = 0; unit < leaves.size(); ++unit)
      leaves[unit] = leaves[unit] || (home.tier != Tier::device && chosen[unit]);
  }
  return leaves;
}

/// A step is on the host if a state of its unit has its home elsewhere than on the device, whatever
/// parameters do. A master that is the parameters themselves does not count.
TEST(Offload, StepsAreWhereTheirStatesAre) {
  const Home homes[] = {{Tier::device, 1}, {Tier::host, 0.5}, {Tier::nvme, 1}};
  int on_host = 0, on_device = 0;
  for (const bool master : {true, false})
    for (const Home& of_master : homes)
      for (const Home& of_optimizer : homes)
        for (const StepOn where : {StepOn::automatic, StepOn::host, StepOn::device}) {
          if (where != StepOn::automatic && of_master != of_optimizer) continue;
          OffloadOptions options;
          options.master = of_master;
          options.optimizer = of_optimizer;
          options.step = where;
          options.parameters.tier = master ? Tier::device : Tier::host;
          JobSpec spec = spec_with(options);
          if (!master) spec.precision.master = spec.precision.parameters;
          const Program p = compile(test::small_model(), spec, 0).train();
          const std::vector<bool> leaves =
              units_away(p, master ? std::vector{of_master, of_optimizer} : std::vector{of_optimizer});
          for (const Op& op : p.ops) {
            if (op.type != OptimizerStep::op) continue;
            const bool host = where == StepOn::host || (where == StepOn::automatic &&
                                                        leaves[static_cast<std::size_t>(op.action.part)]);
            EXPECT_EQ(op.tier, host ? Tier::host : Tier::device)
                << op.name << ", master " << name_of(of_master.tier) << ", optimizer "
                << name_of(of_optimizer.tier);
            ++(host ? on_host : on_device);
          }
        }
  EXPECT_GT(on_host, 30);
  EXPECT_GT(on_device, 30);
}

/// Bytes that a rank copies from one tier to another in a step.
std::int64_t carried(const Program& p, Tier from, Tier to) {
  std::int64_t bytes = 0;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id)
    if (const Op& op = p.op(id);
        is_copy(op) && tier_of(p, op.inputs[0]) == from && tier_of(p, op.outputs[0]) == to)
      bytes += p.times(id) * p.tensor(op.inputs[0]).bytes();
  return bytes;
}

/// Of a parameter a gradient of 4 bytes goes down and a weight of 2 bytes comes up, where a step on the
/// device carries 12 of master weight and moments both ways.
TEST(Offload, AStepOnTheHostCarriesSixBytesAParameter) {
  for (const Tier gradients : {Tier::device, Tier::host}) {
    OffloadOptions options;
    options.master = options.optimizer = away;
    options.gradients.tier = gradients;
    const Program host = compile(test::small_model(4), spec_with(options, "FULL_SHARD", 1), 0).train();
    std::int64_t states = 0,
                 stepped = 0;  // elements of this rank's shard, and those that are none of padding
    for (const std::int64_t unit : host.unit_elements) states += unit / 2;
    for (const Op& op : host.ops)
      if (op.type == OptimizerStep::op)
        for (const SteppedPiece& piece : record_of<OptimizerStep>(op.attributes).pieces)
          stepped += piece.count;
    EXPECT_EQ(carried(host, Tier::device, Tier::host),
              4 * states + static_cast<std::int64_t>(sizeof(StepScalars)));
    EXPECT_EQ(carried(host, Tier::host, Tier::device), 2 * stepped);
    options.step = StepOn::device;
    options.gradients = {};
    const Program device = compile(test::small_model(4), spec_with(options, "FULL_SHARD", 1), 0).train();
    EXPECT_EQ(carried(device, Tier::device, Tier::host), 12 * states);
    EXPECT_EQ(carried(device, Tier::host, Tier::device), 12 * states);
  }
}

TEST(Offload, HostStepsHaveAStreamOfTheirOwn) {
  OffloadOptions options;
  options.step = StepOn::host;
  for (const char* strategy : {"NO_SHARD", "zero1", "FULL_SHARD"})
    for (const bool master : {true, false}) {
      JobSpec spec = spec_with(options, strategy);
      if (!master) spec.precision.master = spec.precision.parameters;
      const Program p = compile(test::small_model(4), spec, 0).train();
      for (const Op& op : p.ops) {
        if (op.type != OptimizerStep::op) continue;
        EXPECT_EQ(op.stream, Stream::host);
        const bool reads = std::ranges::find(op.inputs, op.outputs[0]) != op.inputs.end();
        EXPECT_EQ(reads, !master) << "a parameter that has a master is written whole";
        EXPECT_EQ(record_of<OptimizerStep>(op.attributes).whole, master);
      }
    }
}

/// While one unit steps, or one block computes, the next one's bytes are on their way; no more than those.
TEST(Offload, FetchesAreAheadByOne) {
  const Program p = job_with(all_to(Tier::host, StepOn::device)).train();
  int ahead = 0;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    const Op& fetch = p.op(id);
    if (fetch.action.kind != ActionKind::fetch || p.tensor(fetch.outputs[0]).category != Category::optimizer)
      continue;
    const auto begin = p.ops.begin() + id;
    const auto reads = [&](const Op& op) {
      return !is_copy(op) && std::ranges::any_of(op.inputs, [&](TensorId t) {
        return p.storage(t) == p.storage(fetch.outputs[0]);
      });
    };
    const auto use = std::find_if(begin, p.ops.end(), reads);
    ASSERT_NE(use, p.ops.end());
    const auto between = std::count_if(begin, use, [](const Op& op) { return op.type == "optimizer_step"; });
    EXPECT_LE(between, 1);
    ahead += static_cast<int>(between);
  }
  EXPECT_GE(ahead, 2 * 5) << "two moments of all units but the first";
}

TEST(Offload, WhatGoesToNvmeGoesThroughTheHost) {
  const Program p = job_with(all_to(Tier::nvme, StepOn::device)).train();
  std::int64_t through = 0;
  for (const Op& op : p.ops) {
    if (!is_copy(op)) continue;
    const Tier from = tier_of(p, op.inputs[0]), to = tier_of(p, op.outputs[0]);
    EXPECT_TRUE(are_neighbours(from, to) && from != to) << op.name;
    EXPECT_EQ(op.stream, from == Tier::nvme || to == Tier::nvme ? Stream::io
                         : to == Tier::device                   ? Stream::to_device
                                                                : Stream::to_host);
    through += from == Tier::nvme;
  }
  EXPECT_GT(through, 0);
  for (const Tensor& t : p.tensors)
    if (t.base == no_tensor && t.tier != Tier::device && t.address >= 0) {
      EXPECT_EQ(t.address % 4096, 0) << t.name;
    }
}

/// Of many blocks the host has those on their way between NVMe and the device, not all.
TEST(Offload, StaysAreShort) {
  const auto in_between = [](int layers) {
    const Job job = compile(test::small_model(layers), spec_with(all_to(Tier::nvme)), 0);
    return job.train().plan[static_cast<std::size_t>(Tier::host)].live_bytes;
  };
  EXPECT_LT(static_cast<double>(in_between(12)), 1.05 * static_cast<double>(in_between(4)));
}

/// What is planted into the step of a good job, and how it is refused.
std::string refused(const std::function<void(Program&)>& plant, const char* strategy = "FULL_SHARD",
                    Tier tier = Tier::host, StepOn step_on = StepOn::device) {
  OffloadOptions options = all_to(tier, step_on);
  if (step_on == StepOn::host) options.parameters = {};
  Job job = job_with(options, strategy);
  const std::vector<TensorId> there = given(job.load(), job.tensors);
  Program& step = job.programs.at(train_name);
  const auto check = [&] {
    verify_rank(step);
    verify_placements(step);
    verify_successions(job.programs, there);
  };
  EXPECT_EQ(refusal(check), "");
  plant(step);
  return refusal(check);
}

void drop(Program& p, const std::function<bool(const Op&)>& which) {
  const auto op = std::ranges::find_if(p.ops, which);
  ASSERT_NE(op, p.ops.end());
  p.ops.erase(op);
  for (Op& o : p.ops) o.after.clear();
  link_dependencies(p);
  plan_lifetimes(p);
  plan_memory(p);
}

TEST(BrokenOffload, AStateThatIsNotEvictedIsRefused) {
  for (const Category category : {Category::parameter, Category::master, Category::optimizer})
    for (const char* strategy : {"FULL_SHARD", "zero1"}) {
      const std::string message = refused(
          [&](Program& p) { drop(p, [&](const Op& op) { return evicts(p, op, category); }); }, strategy);
      EXPECT_NE(message.find("is not copied back to"), std::string::npos)
          << strategy << " " << name_of(category) << ": " << message;
    }
}

TEST(BrokenOffload, AParameterThatTheHostWroteIsToComeBack) {
  for (const char* strategy : {"FULL_SHARD", "zero1"}) {
    const std::string message =
        refused([](Program& p) { drop(p, [&](const Op& op) { return evicts(p, op, Category::parameter); }); },
                strategy, Tier::host, StepOn::host);
    EXPECT_NE(message.find("which is not there, or not up to date, after 'train step'"), std::string::npos)
        << strategy << ": " << message;
  }
}

TEST(BrokenOffload, AFetchThatIsLeftOutIsRefused) {
  for (const Category category : {Category::optimizer, Category::activation, Category::gradient}) {
    const std::string message = refused([&](Program& p) {
      drop(p, [&](const Op& op) {
        return op.action.kind == ActionKind::fetch && p.tensor(op.outputs[0]).category == category;
      });
    });
    EXPECT_NE(message.find("before any op writes"), std::string::npos)
        << name_of(category) << ": " << message;
  }
}

TEST(BrokenOffload, AFetchBeforeItsEvictionIsRefused) {
  const std::string message = refused([](Program& p) {
    const auto evict =
        std::ranges::find_if(p.ops, [&](const Op& op) { return evicts(p, op, Category::activation); });
    ASSERT_NE(evict, p.ops.end());
    const TensorId home = evict->outputs[0];
    const auto fetch = std::find_if(evict, p.ops.end(), [&](const Op& op) {
      return op.action.kind == ActionKind::fetch && op.inputs[0] == home;
    });
    ASSERT_NE(fetch, p.ops.end());
    std::rotate(evict, fetch, fetch + 1);
    for (Op& o : p.ops) o.after.clear();
    link_dependencies(p);
    plan_lifetimes(p);
    plan_memory(p);
  });
  EXPECT_NE(message.find("before any op writes"), std::string::npos) << message;
}

TEST(BrokenOffload, AnOpThatDoesNotWaitForItsFetchIsRefused) {
  const std::string message = refused([](Program& p) {
    for (Op& op : p.ops)
      if (op.type == "optimizer_step") op.after.clear();
  });
  EXPECT_NE(message.find("a dependency is missing"), std::string::npos) << message;
}

TEST(BrokenOffload, AnOpInAnotherTierIsRefused) {
  EXPECT_NE(refused([](Program& p) {
              std::ranges::find(p.ops, "optimizer_step", &Op::type)->tier = Tier::host;
            }).find("works on the host tier, but"),
            std::string::npos);
  const std::string message = refused(
      [](Program& p) {
        const auto from_nvme = [&](const Op& op) {
          return is_copy(op) && tier_of(p, op.inputs[0]) == Tier::nvme;
        };
        const auto copy = std::ranges::find_if(p.ops, from_nvme);
        ASSERT_NE(copy, p.ops.end());
        copy->outputs = (copy + 1)->outputs;
      },
      "FULL_SHARD", Tier::nvme);
  EXPECT_NE(message.find("which is reached from the host alone"), std::string::npos) << message;
}

}  // namespace
}  // namespace ztrain::program::offload_test
