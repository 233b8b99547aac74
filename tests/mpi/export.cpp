// Exports by several ranks: who writes what, who waits, and who fails.
#include "checkpoint/hf/export.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "checkpoint/rank_group.hpp"
#include "files/safetensors.hpp"
#include "tests/support/checkpoint_ranks.hpp"

namespace ztrain::export_test {
namespace {

using namespace test;
using checkpoint::Group;

class Export : public CheckpointOfRanks {
 protected:
  /// This rank's part of the bytes, as its last progress says.
  std::int64_t export_to(const fs::path& path, const fs::path& to, const checkpoint::ExportOptions& options,
                         checkpoint::Exported& exported) const {
    std::int64_t last = 0, part = 0;
    exported = checkpoint::export_weights(path, to, {}, options, [&](std::int64_t done, std::int64_t total) {
      EXPECT_LE(last, done);
      EXPECT_LE(done, total);
      last = done;
      part = total;
    });
    return part;
  }
};

/// The values of a tensor of a folder's only file.
std::vector<float> tensor_of(const fs::path& folder, const std::string& name, std::size_t& tensors) {
  const auto file = PosixFile::open_to_read(folder / single_safetensors);
  const auto found = read_safetensors(file);
  tensors = found.size();
  for (const auto& t : found) {
    if (t.name != name) continue;
    std::vector<float> values(static_cast<std::size_t>(t.bytes) / sizeof(float));
    file.read_at(values.data(), t.bytes, t.begin);
    return values;
  }
  return {};
}

TEST_F(Export, RanksShareTheBytes) {
  const fs::path path = save(mesh_of(1, ranks(), 1), DType::f32, 1), to = folder_ / "model";
  checkpoint::Exported exported;
  const std::int64_t part = export_to(path, to, {.dtype = DType::f32}, exported);
  std::int64_t sum = 0;
  for (const std::int64_t bytes : Group::world().all_gather(part)) sum += bytes;
  EXPECT_EQ(exported.tensors, 9);
  EXPECT_EQ(exported.files, 1);
  if (ranks() > 1) {
    EXPECT_EQ(sum, exported.bytes);
    EXPECT_LE(part, exported.bytes / ranks() + ranks());
  }
  std::size_t tensors = 0;
  const auto parameters = awkward_parameters(1);
  const auto values = tensor_of(to, parameters[4].name, tensors);
  EXPECT_EQ(tensors, parameters.size());
  ASSERT_EQ(std::ssize(values), elements(parameters[4].shape));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], value_of(0, 4, static_cast<std::int64_t>(i)));
}

/// Small whole numbers: the sums are exact.
TEST_F(Export, AdaptersAreAddedWithTheirScale) {
  const Layout layout(
      {{"m.weight", {3, 4}, {}}, {"m.lora_A.weight", {2, 4}, {}}, {"m.lora_B.weight", {3, 2}, {}}},
      {{ranks()}});
  const Place place{&layout, Coordinate(mesh_of(1, ranks(), 1), session().rank())};
  Shards shards = filled(place, DType::f32);
  checkpoint::save(folder_, 1, place, shards.states(), {{"step", 1}});
  checkpoint::Exported exported;
  checkpoint::ExportOptions options{.dtype = DType::f32};
  options.adapters.alpha = 6;
  export_to(folder_ / "step_1", folder_ / "merged", options, exported);
  std::size_t tensors = 0;
  const auto values = tensor_of(folder_ / "merged", "m.weight", tensors);
  EXPECT_EQ(tensors, 1u);
  ASSERT_EQ(values.size(), 12u);
  for (std::int64_t i = 0; i < 12; ++i) {
    float sum = 0;
    for (std::int64_t q = 0; q < 2; ++q) sum += value_of(0, 2, i / 4 * 2 + q) * value_of(0, 1, q * 4 + i % 4);
    EXPECT_EQ(values[static_cast<std::size_t>(i)], value_of(0, 0, i) + 6 / 2 * sum) << i;
  }
}

TEST_F(Export, WhatExistsIsNotTouched) {
  const fs::path path = save(mesh_of(1, ranks(), 1), DType::f32, 1);
  checkpoint::Exported exported;
  const checkpoint::ExportOptions options{.keys = {"the.key", "the.dtype"}};
  const std::string error = error_of([&] { export_to(path, path, options, exported); });
  EXPECT_TRUE(contains(error, "rank 0: ") && contains(error, "exists: give another folder with the.key"))
      << error;
  session().barrier();
  EXPECT_TRUE(fs::exists(path / "index.h5"));
}

TEST_F(Export, AnotherExportIsLeftAlone) {
  const fs::path path = save(mesh_of(1, ranks(), 1), DType::f32, 1), busy = folder_ / "busy.tmp";
  std::optional<PosixFile> marker;
  if (session().rank() == 0) {
    fs::create_directory(busy);
    marker.emplace(PosixFile::create(busy / ".ztrain_export"));
    ASSERT_TRUE(marker->lock());
  }
  checkpoint::Exported exported;
  const std::string error = error_of([&] { export_to(path, folder_ / "busy", {}, exported); });
  EXPECT_TRUE(contains(error, "another export is under way there")) << error;
  session().barrier();
  EXPECT_TRUE(fs::exists(busy / ".ztrain_export"));
  session().barrier();
  marker.reset();
  export_to(path, folder_ / "busy", {}, exported);
  EXPECT_EQ(exported.removed_remains, session().rank() == 0) << "nobody holds it any more";
}

TEST_F(Export, RanksThatWaitSaySo) {
  const Group world = Group::world();
  int calls = 0;
  const auto slow = [&] {
    if (world.rank() == ranks() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  world.together(slow, [&] { ++calls; });
  EXPECT_TRUE(calls > 5 || world.rank() == ranks() - 1) << calls;
  const std::string error = error_of([&] {
    world.together(
        [&] {
          slow();
          REQUIRE(world.rank() != ranks() - 1, "no");
        },
        [&] { ++calls; });
  });
  EXPECT_EQ(error, fmt::format("rank {}: no", ranks() - 1));
}

}  // namespace
}  // namespace ztrain::export_test
