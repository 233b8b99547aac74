// The copy of the state that is saved while training goes on: all of one step, wherever states are kept, and
// no later step shows in it.

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/checkpoint.hpp"
#include "job/weights.hpp"
#include "kernels/launch/exec.hpp"
#include "plan/memory.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::snapshots_test {
namespace {

using program::Home;
using program::Tier;
using test::session;
using test::TinyModel;
namespace fs = std::filesystem;

program::JobSpec spec_of(const TinyModel& m, const char* strategy) {
  program::JobSpec spec = test::spec_of_ranks(m, strategy, session().size());
  spec.snapshots = program::Snapshots::of_savers;
  return spec;
}

std::string bytes_of(const fs::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

class Snapshots : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  std::string saved(const char* name, job::Worker& worker,
                    const std::vector<checkpoint::StateShard>& states) {
    const auto& job = worker.job();
    checkpoint::save(folder_.path() / name, 1, job::place_of(job.load(), job.layout), states, {},
                     {.files = 1});
    session().barrier();
    return bytes_of(folder_.path() / name / "step_1" / "shard_0000.h5");
  }

  /// What is saved of the copy two steps later is what the state was.
  void expect_whole(const program::JobSpec& spec, const TinyModel& m,
                    std::unique_ptr<runtime::Device> device) {
    job::WorkerOptions options{.poison = true};
    options.nvme.paths = {fs::temp_directory_path()};
    job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options, std::move(device));
    std::vector<checkpoint::StateShard> copy;
    std::string expected;
    test::train_losses(worker, m, spec.micro_batches, 4, [&](int step, auto run) {
      run();
      if (step != 1) return;
      expected = saved("waited", worker, worker.state(true));
      copy = worker.copied_state();
    });
    const std::string late = saved("copied", worker, copy);
    EXPECT_FALSE(expected.empty());
    EXPECT_TRUE(late == expected) << "the copy is not the state of its step";
    EXPECT_FALSE(saved("later", worker, worker.state(true)) == expected) << "the state did not change";
    worker.memory().check_guards();
  }

  test::FolderOfRanks folder_;
};

std::unique_ptr<runtime::Device> deferred() {
  return runtime::make_deferred_device(static_cast<std::uint64_t>(100 + session().rank()));
}

TEST_F(Snapshots, HoldOneStep) {
  const TinyModel m;
  for (const char* strategy : {"NO_SHARD", "zero2", "FULL_SHARD"}) {
    SCOPED_TRACE(strategy);
    expect_whole(spec_of(m, strategy), m, nullptr);
  }
}

TEST_F(Snapshots, HoldOneStepOfALateDevice) {
  if (runtime::built_for_gpus()) GTEST_SKIP() << "kernels of a build for GPUs do not reach such memory";
  const TinyModel m;
  expect_whole(spec_of(m, "FULL_SHARD"), m, deferred());
}

TEST_F(Snapshots, HoldOneStepWhereStatesAreOffloaded) {
  const TinyModel m;
  program::JobSpec spec = spec_of(m, "FULL_SHARD");
  for (const Tier tier : {Tier::host, Tier::nvme}) {
    SCOPED_TRACE(name_of(tier));
    spec.offload.parameters = spec.offload.master = spec.offload.optimizer = Home{tier, 1};
    expect_whole(spec, m, nullptr);
    if (!runtime::built_for_gpus()) expect_whole(spec, m, deferred());
  }
}

/// Of codes with a scale for each block, and of a moment less.
TEST_F(Snapshots, HoldOneStepOfOtherOptimizers) {
  const TinyModel m;
  program::JobSpec spec = spec_of(m, "zero1");
  for (const char* name : {"adamw_8bit", "lion"}) {
    SCOPED_TRACE(name);
    spec.optimizer.options.name = name;
    expect_whole(spec, m, nullptr);
  }
}

/// The plan has them to the byte, on the ranks that save or on all, and on no other.
TEST_F(Snapshots, ArePlanned) {
  const TinyModel m;
  const auto host_bytes = [&](program::Snapshots snapshots, const char* strategy) {
    program::JobSpec spec = spec_of(m, strategy);
    spec.snapshots = snapshots;
    const program::Job job = program::compile(m.graph(DType::bf16), spec, session().rank());
    std::int64_t bytes = 0;
    for (const plan::MemoryRow& row : plan::memory_rows(job.train(), Tier::host)) {
      EXPECT_EQ(row.category, name_of(program::Category::snapshot));
      bytes += row.persistent_bytes;
    }
    EXPECT_GE(plan::memory_of(job.programs.all()).total(Tier::host), bytes);
    return bytes;
  };
  const program::JobSpec spec = spec_of(m, "zero2");
  const program::Job job = program::compile(m.graph(DType::bf16), spec, session().rank());
  std::int64_t state = 0;
  for (const FlatUnit& unit : job.layout.units())
    state += unit.shard_elements * 3 * 4;  // master, two moments
  using enum program::Snapshots;
  EXPECT_EQ(host_bytes(none, "zero2"), 0);
  EXPECT_EQ(host_bytes(of_savers, "zero2"), state);
  if (session().size() < 2) return;
  const bool owner = Coordinate(spec_of(m, "HYBRID_SHARD").mesh, session().rank())[Axis::replicate] == 0;
  EXPECT_EQ(host_bytes(of_savers, "HYBRID_SHARD") > 0, owner);
  EXPECT_GT(host_bytes(of_all, "HYBRID_SHARD"), 0);
}

/// Each rank has room for a state of which its values are its own, and copies into it what it saves.
TEST_F(Snapshots, HaveRoomForStatesOfEachCopy) {
  if (session().size() < 2) GTEST_SKIP() << "there is one copy";
  const TinyModel m;
  program::JobSpec spec = spec_of(m, "HYBRID_SHARD");
  spec.snapshots = program::Snapshots::none;
  const program::Job job = program::compile(m.graph(DType::bf16), spec, session().rank());
  program::Program rank = job.load();
  program::JobTensors tensors = job.tensors;
  std::int64_t all = 0, own = 0;
  for (program::UnitState& unit : tensors.units) {
    unit.states[1].of_each_copy = true;
    all += rank.tensor(unit.master.slice).bytes() + rank.tensor(unit.optimizer[0].slice).bytes();
    own += rank.tensor(unit.optimizer[1].slice).bytes();
  }
  const std::size_t before = rank.tensors.size();
  add_snapshots(rank, tensors.units, program::Snapshots::of_savers);
  std::int64_t bytes = 0;
  for (std::size_t t = before; t < rank.tensors.size(); ++t) bytes += rank.tensors[t].bytes();
  EXPECT_EQ(bytes, own + (owns(Coordinate(spec.mesh, session().rank())) ? all : 0));
  for (const program::UnitState& unit : tensors.units)
    EXPECT_EQ(rank.tensor(unit.snapshot.at(2)).name, "snapshot." + rank.tensor(unit.optimizer[1].slice).name);
  for (const checkpoint::StateForm& form : job::state_forms(rank, tensors))
    EXPECT_EQ(form.of_each_copy, form.state == "optimizer/exp_avg_sq") << form.state;
}

}  // namespace
}  // namespace ztrain::snapshots_test
