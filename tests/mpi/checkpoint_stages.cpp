// Checkpoints of jobs whose stages have different parameters trained: what is planned is written, what is
// written is read, and a job whose ranks do not agree on the save is refused before it runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/checkpoint.hpp"
#include "config/deck.hpp"
#include "job/save_proof.hpp"
#include "job/weights.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/planned_datasets.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::checkpoint_stages_test {
namespace {

using checkpoint::SavePlan;
using test::session;
using test::TinyModel;
namespace fs = std::filesystem;

constexpr DType f32 = DType::f32, bf16 = DType::bf16;
constexpr program::Precision narrow{bf16, f32, f32, f32, f32};

struct Case {
  const char* name;
  std::vector<std::string> trainable = {}, frozen = {};
  int adapters = 0;  ///< lora.rank
  bool tied = false;
  int files = 0;
  const char* optimizer = "adamw";
  program::UnitGranularity units = program::UnitGranularity::block;
};

const std::vector<Case> cases{
    {.name = "all", .tied = true, .files = 1},
    {.name = "adapters", .adapters = 2},
    {.name = "first_unit_frozen", .frozen = {"model.embed_tokens.weight"}, .files = 1},
    {.name = "tied_and_frozen", .frozen = {"model.embed_tokens.weight"}, .tied = true, .files = 2},
    {.name = "nothing_trained_on_one_stage", .trainable = {"model.layers.3.*"}},
    {.name = "norms_alone_of_whole_models",
     .trainable = {"*norm.weight"},
     .units = program::UnitGranularity::model},
    {.name = "blocks_of_codes", .frozen = {"model.layers.0.*"}, .tied = true, .optimizer = "adamw_8bit"},
};

class CheckpointStages : public testing::TestWithParam<Case> {
 protected:
  CheckpointStages() {
    kernels::initialize_backend();
    const Case& c = GetParam();
    model_.dims.num_hidden_layers = 4;
    model_.dims.tie_word_embeddings = c.tied;
    model_.dims.trainable = c.trainable;
    model_.dims.frozen = c.frozen;
    model_.lora = {.rank = c.adapters, .alpha = 4, .targets = {"q_proj", "down_proj"}, .random_base = true};
    MeshShape mesh;
    mesh[Axis::pipeline] = 2, mesh[Axis::shard] = session().size() / 2;
    model_.global = 3 * mesh[Axis::shard];
    spec_ = test::spec_for(model_, mesh, "FULL_SHARD", narrow);
    spec_.schedule = program::find_schedule("1f1b");
    spec_.optimizer.options.name = c.optimizer;
    spec_.units.granularity = c.units;
  }

  job::Worker worker() const { return {session(), model_.graph(spec_.precision.parameters), spec_}; }

  job::SaveParts parts() const { return {model_.graph(spec_.precision.parameters), spec_}; }

  double step(job::Worker& worker, int number) const {
    test::fill(worker, model_, spec_.micro_batches, number * model_.global);
    test::set_scalars(worker.scalars(), number);
    worker.step();
    return worker.scalars().loss;
  }

  TinyModel model_;
  program::JobSpec spec_;
};

std::vector<std::byte> bytes_of(const job::Worker& worker) {
  std::vector<std::byte> bytes;
  for (const checkpoint::StateShard& shard : worker.state(true)) {
    const std::int64_t items = worker.job().layout.unit(shard.unit).shard_elements / shard.granule;
    bytes.insert(bytes.end(), shard.data, shard.data + items * size_of(shard.dtype));
  }
  return bytes;
}

TEST_P(CheckpointStages, AreWrittenAsPlannedAndReadBitwise) {
  const test::FolderOfRanks folder;
  job::Worker first = worker();
  const auto& job = first.job();
  const job::SaveParts planned = parts();
  const std::vector<std::int64_t> nodes(static_cast<std::size_t>(session().size()));
  const SavePlan plan = plan_save(spec_.mesh, planned.by_place(), nodes, GetParam().files);

  first.initialize(11);
  for (int number = 0; number < 2; ++number) step(first, number);
  const checkpoint::Place place = job::place_of(job.load(), job.layout);
  const auto saved = first.state(true);
  checkpoint::save(folder.path(), 2, place, saved, {}, {.files = GetParam().files});
  const std::vector<std::byte> bytes = bytes_of(first);
  const fs::path written = folder.path() / "step_2";
  EXPECT_EQ(test::datasets_in(written), test::datasets_of(plan));
  const double loss = step(first, 2);

  job::Worker second = worker();
  const auto states = second.state(true);
  session().agree("reading the checkpoint", [&] { checkpoint::load(written, place, states); });
  EXPECT_TRUE(bytes_of(second) == bytes);
  second.derive_parameters();
  EXPECT_EQ(step(second, 2), loss);
  EXPECT_TRUE(bytes_of(second) == bytes_of(first));
}

TEST_P(CheckpointStages, MayLackWhatIsFrozen) {
  spec_.saves_frozen = false;
  const test::FolderOfRanks folder;
  const job::SaveParts planned = parts();
  const std::vector<std::int64_t> nodes(static_cast<std::size_t>(session().size()));
  const SavePlan plan = plan_save(spec_.mesh, planned.by_place(), nodes, GetParam().files);
  job::Worker first = worker(), second = worker();
  first.initialize(11);
  step(first, 0);
  const program::Job& job = first.job();
  const checkpoint::Place place = job::place_of(job.load(), job.layout);
  const bool lacks = std::ranges::any_of(job.layout.parameters(), [](const auto& p) { return !p.trainable; });
  const auto saved = job::saved_of(first.state(true), job.tensors);
  if (lacks) {
    EXPECT_THROW(checkpoint::save(folder.path(), 1, place, saved, {}, {.files = GetParam().files}),
                 checkpoint::NotSaved)
        << "nothing says where the frozen weights are";
  }
  const nlohmann::json elsewhere{{checkpoint::frozen_key, "elsewhere"}};
  checkpoint::save(folder.path(), 2, place, saved, elsewhere, {.files = GetParam().files});
  const fs::path written = folder.path() / "step_2";
  EXPECT_EQ(test::datasets_in(written), test::datasets_of(plan));
  bool has_all = lacks;
  session().agree("reading the checkpoint",
                  [&] { has_all = checkpoint::load(written, place, second.state(true)).has_all; });
  EXPECT_EQ(has_all, !lacks);
  second.draw_frozen(11);
  EXPECT_TRUE(bytes_of(second) == bytes_of(first));
}

/// What prove_saves says where the last rank has `own`.
std::string refusal_of(const checkpoint::SavePart& own, const MeshShape& mesh, const job::MakeParts& make) {
  telemetry::Console silent;
  config::Deck deck;
  try {
    job::prove_saves(session(), silent, deck, mesh, own, make);
  } catch (const runtime::AgreedError& e) {
    return e.what();
  }
  return "";
}

TEST_P(CheckpointStages, AreProvenBeforeTheStart) {
  const int last = session().size() - 1;
  const program::Job job =
      program::compile(model_.graph(spec_.precision.parameters), spec_, session().rank());
  const auto proof = [&](auto plant) {
    checkpoint::SavePart own = job::save_part(job);
    if (session().rank() == last) plant(own);
    return refusal_of(own, spec_.mesh, [this] { return parts(); });
  };
  EXPECT_EQ(proof([](checkpoint::SavePart&) {}), "");
  const std::string said = proof([](checkpoint::SavePart& own) { own.states.back().dtype = DType::f16; });
  EXPECT_NE(said.find("rank " + std::to_string(last) + " has \""), said.npos) << said;
  EXPECT_NE(said.find("fp16"), said.npos) << said;
  EXPECT_NE(said.find("checkpoint.interval = -1"), said.npos) << said;
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

INSTANTIATE_TEST_SUITE_P(Cases, CheckpointStages, testing::ValuesIn(cases),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ztrain::checkpoint_stages_test
