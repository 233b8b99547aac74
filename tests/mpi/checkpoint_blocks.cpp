// States with one item per block of 256 elements beside states of one code per element: quantised moments.
#include <gtest/gtest.h>

#include "checkpoint/format/format.hpp"
#include "tests/support/checkpoint_ranks.hpp"

namespace ztrain::checkpoint_blocks_test {
namespace {

using namespace test;

class CheckpointBlocks : public CheckpointOfRanks {};

const checkpoint::PieceRow* find_row(const checkpoint::Index& index, const std::string& state,
                                     const std::string& parameter) {
  for (const auto& row : index.pieces)
    if (index.catalog.states[static_cast<std::size_t>(row.state)].name == state &&
        index.catalog.parameters[static_cast<std::size_t>(row.parameter)].name == parameter)
      return &row;
  return nullptr;
}

TEST_F(CheckpointBlocks, ComeBackBitwiseOnAnyNumberOfShards) {
  for (std::int64_t block : {256, 64, 1}) {
    const StateKinds kinds = quantised_states(DType::bf16, block);
    const fs::path path = save(mesh_of(1, ranks(), 1), kinds, block, {2, 0});
    for (int shards : {1, 2, 3, 4, 5, 8}) expect_reload(path, mesh_of(1, shards, 1), kinds);
  }
}

TEST_F(CheckpointBlocks, OnlyTheFirstReplicaWrites) {
  if (ranks() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  const StateKinds kinds = quantised_states(DType::f32);
  const fs::path path = save(mesh_of(2, ranks() / 2, 1), kinds, 1);
  for (int shards : {1, 3}) expect_reload(path, mesh_of(1, shards, 1), kinds);
}

TEST_F(CheckpointBlocks, ShortLastBlocksHaveAnItem) {
  const fs::path path = save(mesh_of(1, ranks(), 1), quantised_states(DType::f32), 1);
  const auto index = checkpoint::read_index(path / "index.h5");
  std::map<std::pair<std::string, std::string>, std::int64_t> items;
  for (const auto& row : index.pieces)
    items[{index.catalog.states[static_cast<std::size_t>(row.state)].name,
           index.catalog.parameters[static_cast<std::size_t>(row.parameter)].name}] += row.count;
  const std::string absmax = "optimizer/exp_avg.absmax";
  EXPECT_EQ((items[{"optimizer/exp_avg", "lm_head.weight"}]), 1001 * 13);
  EXPECT_EQ((items[{absmax, "lm_head.weight"}]), 51);            // 50 blocks and 213 elements
  EXPECT_EQ((items[{absmax, "model.embed_tokens.weight"}]), 5);  // 4 blocks and 237 elements
  EXPECT_EQ((items[{absmax, "model.norm.weight"}]), 1);          // 13 elements
  const auto* scale = find_row(index, absmax, "model.norm.weight");
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->bytes(), 4);
  EXPECT_EQ(scale->type(), DType::f32);
}

TEST_F(CheckpointBlocks, BelongToTheTensorSlicesThatTheyWereMadeOn) {
  std::vector<MeshShape> writers{mesh_of(1, 1, ranks())};
  if (ranks() == 4) writers.push_back(mesh_of(1, 2, 2));
  const StateKinds kinds = quantised_states(DType::bf16);
  for (const MeshShape& writer : writers) {
    const fs::path path = save(writer, kinds, 7, {2, 0});
    const int tensor = writer[Axis::tensor];
    for (int shards : {1, 2, 3}) expect_reload(path, mesh_of(1, shards, tensor), kinds);
    const Rank other(mesh_of(1, 1, tensor == 1 ? 2 : 1), 0);
    const std::string error = error_of([&] { loaded(path, other.place, kinds); });
    EXPECT_TRUE(contains(error, "index.h5") && contains(error, "optimizer/exp_avg.absmax") &&
                contains(error, "self_attn.q_proj.weight") && contains(error, "mesh.tensor") &&
                contains(error, fmt::format("over dim 0 into {}", tensor == 1 ? 2 : tensor)))
        << error;
    // The weights follow any slices.
    const StateKinds weights{kinds[0]};
    EXPECT_TRUE(filled(other.place, weights) ==
                loaded(path, other.place, weights, {.others = checkpoint::OtherStates::skip}));
  }
}

/// Each of 8 experts is a block, so blocks go wherever experts go.
TEST_F(CheckpointBlocks, FollowSlicesThatCutNone) {
  struct Part {
    Part(int parts, int rank)
        : mesh(mesh_over(parts)),
          layout({{"experts", {8, 256}, {0, parts, {}, Axis::expert}, 0, true}}, {{1, AxisSet()}},
                 Coordinate(mesh, rank)),
          place{&layout, Coordinate(mesh, rank)},
          shards(place, {{"model"}, {"optimizer/exp_avg.absmax", DType::f32, 256}}),
          first(rank * 8 / parts),
          count(8 / parts) {}
    static MeshShape mesh_over(int parts) {
      MeshShape mesh;
      mesh[Axis::expert] = parts;
      return mesh;
    }
    float* absmax() { return reinterpret_cast<float*>(shards.states()[1].data); }
    MeshShape mesh;
    Layout layout;
    Place place;
    Shards shards;
    int first, count;
  };
  Part own(ranks(), session().rank());
  for (int e = 0; e < own.count; ++e) own.absmax()[e] = static_cast<float>(own.first + e + 1);
  checkpoint::save(folder_, 1, own.place, own.shards.states(), {});
  for (const int parts : {1, 2, 4, 8})
    for (int r = session().rank(); r < parts; r += ranks()) {
      Part other(parts, r);
      checkpoint::load(folder_ / "step_1", other.place, other.shards.states());
      for (int e = 0; e < other.count; ++e)
        EXPECT_EQ(other.absmax()[e], static_cast<float>(other.first + e + 1)) << parts << " rank " << r;
    }
}

TEST_F(CheckpointBlocks, H5pyReadsTheirItems) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py: the virtual datasets are NOT checked";
  std::vector<MeshShape> writers{mesh_of(1, ranks(), 1), mesh_of(1, 1, ranks())};
  if (ranks() == 4) writers.push_back(mesh_of(1, 2, 2));
  for (const MeshShape& writer : writers)
    expect_h5py_reads(save(writer, quantised_states(DType::f32), 1, {3, 0}), python);
}

TEST_F(CheckpointBlocks, OneNameHasOneBlockSize) {
  const Rank self(mesh_of(1, ranks(), 1), session().rank());
  const auto error_of_save = [&](Shards& shards) {
    return error_of([&] { checkpoint::save(folder_, 1, self.place, shards.states(), {}); });
  };
  // In units of one rank, and between ranks.
  Shards shards = filled(self.place, quantised_states(DType::f32));
  shards.states()[7].granule = 128;
  std::string error = error_of_save(shards);
  EXPECT_TRUE(contains(error, "optimizer/exp_avg.absmax") && contains(error, "256") && contains(error, "128"))
      << error;
  if (ranks() > 1) {
    Shards mixed =
        filled(self.place, quantised_states(DType::f32, session().rank() == ranks() - 1 ? 128 : 256));
    error = error_of_save(mixed);
    EXPECT_TRUE(contains(error, "optimizer/exp_avg.absmax") && contains(error, "256") &&
                contains(error, "128"))
        << error;
  }
  Shards uneven = filled(self.place, quantised_states(DType::f32));
  for (StateShard& s : uneven.states())
    if (s.granule > 1) s.granule = 96;  // ranks would cut its blocks
  error = error_of_save(uneven);
  EXPECT_TRUE(contains(error, "optimizer/exp_avg.absmax") && contains(error, "divisors of 256")) << error;
  EXPECT_TRUE(checkpoint::list(folder_).empty());
}

}  // namespace
}  // namespace ztrain::checkpoint_blocks_test
