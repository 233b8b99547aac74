// What an index whose tables are damaged, older or of another optimizer does. One rank.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "checkpoint/format/format.hpp"
#include "files/hdf5_file.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace ztrain::checkpoint_tables_test {
namespace {

using namespace test;
using checkpoint::PieceRow;
namespace fs = std::filesystem;

const std::string absmax = "optimizer/exp_avg_sq.absmax", head = "lm_head.weight";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Replaces bytes, of which there is one occurrence, by as many.
void patch(const fs::path& path, const std::string& from, const std::string& to) {
  std::string bytes = read_file(path);
  const std::size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(bytes.find(from, at + 1), std::string::npos);
  ASSERT_EQ(from.size(), to.size());
  bytes.replace(at, to.size(), to);
  std::ofstream(path, std::ios::binary) << bytes;
  reseal(path.parent_path());
}

std::string bytes_of(const PieceRow& row) {
  return {reinterpret_cast<const char*>(&row), sizeof row};
}

class CheckpointTables : public testing::Test {
 protected:
  CheckpointTables()
      : layout_(awkward_parameters(1), {3, {2}}), place_{&layout_, Coordinate(mesh_of(1, 2, 1), 0)} {}

  /// Saves a layout of one shard: this is one rank.
  fs::path save(const StateKinds& kinds) {
    const Layout one(awkward_parameters(1), {3, {1}});
    Shards shards = filled({&one, Coordinate({}, 0)}, kinds);
    checkpoint::save(temporary_.path(), 1, {&one, Coordinate({}, 0)}, shards.states(), {{"step", 1}});
    return temporary_.path() / "step_1";
  }
  std::string error_of_load(const fs::path& path, const StateKinds& kinds) {
    return error_of([&] { loaded(path, place_, kinds); });
  }
  /// The error that loading gives after `damage` was done to the row of absmax of head.
  template <class Damage>
  std::string error_with(Damage damage) {
    const fs::path path = save(quantised_states(DType::f32));
    const auto index = checkpoint::read_index(path / "index.h5");
    for (PieceRow row : index.pieces) {
      if (index.catalog.states[static_cast<std::size_t>(row.state)].name != absmax ||
          index.catalog.parameters[static_cast<std::size_t>(row.parameter)].name != head)
        continue;
      const std::string before = bytes_of(row);
      damage(row);
      patch(path / "index.h5", before, bytes_of(row));
    }
    return error_of_load(path, quantised_states(DType::f32));
  }
  static void expect_named(const std::string& error, const std::string& what) {
    EXPECT_TRUE(contains(error, "index.h5") && contains(error, absmax) && contains(error, head) &&
                contains(error, what) && contains(error, "checkpoint.resume"))
        << error;
  }

  TemporaryFolder temporary_;
  Layout layout_;
  Place place_;
};

/// HDF5 itself takes many of these for other values, does not come to an end, or crashes.
TEST_F(CheckpointTables, EveryBitOfTheIndexCounts) {
  const StateKinds kinds = plain_states(DType::f32);
  const fs::path path = save(kinds), index = path / "index.h5";
  const std::int64_t bits = static_cast<std::int64_t>(fs::file_size(index)) * 8;
  const auto flip = [&](std::int64_t bit) {
    std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(bit / 8);
    const char byte = static_cast<char>(file.get() ^ (1 << bit % 8));
    file.seekp(bit / 8);
    file.put(byte);
  };
  for (std::int64_t k = 0; k < 200; ++k) {
    const std::int64_t bit = k * 7919 * 31 % bits;
    flip(bit);
    const std::string error = error_of_load(path, kinds);
    EXPECT_TRUE(contains(error, index.string()) && contains(error, "checksum") && contains(error, "resume"))
        << "bit " << bit << ": " << error;
    flip(bit);
  }
  EXPECT_EQ(error_of_load(path, kinds), "no error");
}

TEST_F(CheckpointTables, MetadataAreTheSameInBothFiles) {
  const StateKinds kinds = plain_states(DType::f32);
  const fs::path path = save(kinds), metadata = path / "metadata.json";
  nlohmann::json said = nlohmann::json::parse(std::ifstream(metadata));
  EXPECT_EQ(checkpoint::read_metadata(path).at("step"), 1);
  said["step"] = 2;
  std::ofstream(metadata) << said;
  const std::string error = error_of([&] { checkpoint::read_metadata(path); });
  EXPECT_TRUE(contains(error, metadata.string()) && contains(error, "was changed")) << error;
  said.erase("index_checksum");
  std::ofstream(metadata) << said;
  EXPECT_TRUE(contains(error_of_load(path, kinds), "has no index_checksum")) << error_of_load(path, kinds);
  fs::resize_file(metadata, 20);
  EXPECT_TRUE(contains(error_of_load(path, kinds), metadata.string()));
  fs::remove(metadata);
  EXPECT_TRUE(contains(error_of_load(path, kinds), "metadata.json: is missing"))
      << error_of_load(path, kinds);
}

TEST_F(CheckpointTables, FilesOutsideTheFolderAreNotOpened) {
  for (const std::string name : {"../../pass.h5", "/etc//./hosts", "............."}) {
    const fs::path path = save(quantised_states(DType::f32));
    patch(path / "index.h5", "\"name\":\"shard_0000.h5\"", "\"name\":\"" + name + "\"");
    const std::string error = error_of_load(path, quantised_states(DType::f32));
    const bool outside = contains(name, "/");
    EXPECT_EQ(outside, contains(error, "its table of files is damaged: '" + name + "'")) << error;
    EXPECT_TRUE(contains(error, "index.h5") || !outside) << error;
  }
}

/// As JSON escapes them: as long as the names in whose place they are.
TEST_F(CheckpointTables, NamesThatCommandTerminalsAreRefused) {
  const StateKinds kinds = quantised_states(DType::f32);
  for (const std::string& name : {head, absmax, std::string("shard_0000.h5")}) {
    const fs::path path = save(kinds);
    patch(path / "index.h5", "\"" + name + "\"", "\"\\u001b[2J" + name.substr(9) + "\"");
    const std::string error = error_of_load(path, kinds);
    const std::string shown = "'\\x1b[2J" + name.substr(9) + "' is no name";
    EXPECT_TRUE(contains(error, "index.h5") && contains(error, shown)) << error;
  }
}

TEST_F(CheckpointTables, DamagedPiecesAreNamed) {
  expect_named(error_with([](PieceRow& row) { --row.count; }), "1 of 51 items have no owner");
  expect_named(error_with([](PieceRow& row) { ++row.count; }), "52 items from 0 on");
  expect_named(error_with([](PieceRow& row) { row.count = -1; }), "-1 items from 0 on");
  expect_named(error_with([](PieceRow& row) { row.slice_begin = std::int64_t{1} << 62; }), "51 items from");
  expect_named(error_with([](PieceRow& row) { row.tensor_index = 3; }), "of slice 3");
  expect_named(error_with([](PieceRow& row) { row.tensor_dim = 1, row.tensor_parts = 2; }),
               "dim 1 of [1001, 13] is cut into 2");
  expect_named(error_with([](PieceRow& row) { row.byte_offset = std::int64_t{1} << 62; }), "shard_0000.h5");
  expect_named(error_with([](PieceRow& row) { row.first_checksum += 1000; }), "checksums is too short");
  const std::string error = error_with([](PieceRow& row) { row.state = 5; });
  EXPECT_TRUE(contains(error, "index.h5") && contains(error, "of state 5")) << error;
}

TEST_F(CheckpointTables, SlicesThatAreNotTheirParameterAreNamed) {
  const std::string norm = "model.norm.weight";
  for (const char* begins : {"[0,12]", "[1,13]", "[0,99]"}) {
    const fs::path path = save(plain_states(DType::f32));
    checkpoint::Index index = checkpoint::read_index(path / "index.h5");
    for (auto& p : index.catalog.parameters)
      if (p.name == norm) p.begins = {0, 13};
    for (PieceRow& row : index.pieces)
      if (index.catalog.parameters[static_cast<std::size_t>(row.parameter)].name == norm) row.tensor_dim = 0;
    checkpoint::write_index(path / "index.h5", index, checkpoint::read_metadata_text(path / "index.h5"));
    reseal(path);
    EXPECT_EQ(error_of_load(path, plain_states(DType::f32)), "no error");
    patch(path / "index.h5", "\"begins\":[0,13]", std::string("\"begins\":") + begins);
    const std::string error = error_of_load(path, plain_states(DType::f32));
    EXPECT_TRUE(contains(error, "index.h5") && contains(error, norm) &&
                contains(error, "dim 0 of [13] is cut into 1 slices of several sizes"))
        << begins << ": " << error;
  }
}

TEST_F(CheckpointTables, ScalesOfAnotherPieceFailTheirChecksum) {
  const std::string error = error_with([](PieceRow& row) { row.byte_offset -= 4; });
  EXPECT_TRUE(contains(error, "shard_0000.h5") && contains(error, absmax) && contains(error, head) &&
              contains(error, "checksum"))
      << error;
}

/// A reader knows the block that it has read last by the number of its checksum.
TEST_F(CheckpointTables, NoTwoPiecesHaveTheSameChecksum) {
  for (const int before : {1, 2}) {
    const std::string error = error_with([&](PieceRow& row) { row.first_checksum -= before; });
    EXPECT_TRUE(contains(error, "index.h5") && contains(error, "is of two pieces") &&
                contains(error, "checkpoint.resume"))
        << before << ": " << error;
  }
}

TEST_F(CheckpointTables, TruncatedShardsNameTheState) {
  const fs::path path = save({{"optimizer/exp_avg.absmax", DType::f32, 256}});
  const fs::path shard = path / "shard_0000.h5";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const std::string error = error_of_load(path, {{"optimizer/exp_avg.absmax", DType::f32, 256}});
  EXPECT_TRUE(contains(error, shard.string()) && contains(error, "truncated") &&
              contains(error, "optimizer/exp_avg.absmax of model.embed_tokens.weight"))
      << error;
}

TEST_F(CheckpointTables, AnotherBlockSizeIsRefused) {
  const fs::path path = save(quantised_states(DType::f32, 256));
  std::string error = error_of_load(path, quantised_states(DType::f32, 128));
  EXPECT_TRUE(contains(error, "index.h5") && contains(error, "exp_avg.absmax of model.embed_tokens.weight") &&
              contains(error, "every 256 elements") && contains(error, "every 128") &&
              contains(error, "optimizer.name"))
      << error;
  // A granule in the tables that is not that of the pieces, and one that is none.
  patch(path / "index.h5", R"("granules":[1,1,256,1,256])", R"("granules":[1,1,256,1,128])");
  error = error_of_load(path, quantised_states(DType::f32));
  EXPECT_TRUE(contains(error, "index.h5") &&
              contains(error, absmax + " of model.embed_tokens.weight: 5 of 10 items have no owner"))
      << error;
  patch(path / "index.h5", R"("granules":[1,1,256,1,128])", R"("granules":[1,1,256,1,127])");
  error = error_of_load(path, quantised_states(DType::f32));
  EXPECT_TRUE(contains(error, "index.h5") && contains(error, absmax) && contains(error, "127")) << error;
  patch(path / "index.h5", R"("granules":[1,1,256,1,127])", R"("granules":[1,1,256,12341])");
  error = error_of_load(path, quantised_states(DType::f32));
  EXPECT_TRUE(contains(error, "index.h5") && contains(error, "4 granules for 5 states")) << error;
}

/// Two parameters of 3 elements, the second frozen; a piece for each (state, parameter) given.
checkpoint::Index index_of(const std::vector<std::pair<int, int>>& pieces) {
  checkpoint::Index index;
  index.catalog = {{{"model"}, {"optimizer/exp_avg"}}, {{"trained", {3}}, {"frozen", {3}, true}}};
  for (const auto& [state, parameter] : pieces) {
    checkpoint::PieceRow row;
    row.state = state;
    row.parameter = parameter;
    row.count = 3;
    index.pieces.push_back(row);
  }
  return index;
}

TEST_F(CheckpointTables, FrozenParametersHaveTheirWeightsAlone) {
  const auto refusal = [](const std::vector<std::pair<int, int>>& pieces) -> std::string {
    try {
      checkpoint::require_complete(index_of(pieces));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({{0, 0}, {0, 1}, {1, 0}}), "");
  EXPECT_EQ(refusal({{0, 0}, {0, 1}, {1, 0}, {1, 1}}), "frozen is frozen and has optimizer/exp_avg");
  EXPECT_EQ(refusal({{0, 0}, {0, 1}}), "no rank has optimizer/exp_avg of trained to save");
  EXPECT_EQ(refusal({{0, 0}, {1, 0}}), "no rank has model of frozen to save");
}

/// Memory for 17592186044416 numbers would be asked for first.
TEST_F(CheckpointTables, ATableLargerThanItsBytesIsRefused) {
  const fs::path path = temporary_.path() / "index.h5";
  auto file = Hdf5File::create(path);
  file.add_virtual("pieces", DType::f32, {std::int64_t{1} << 44}, {});
  file.close();
  Shape shape;
  const std::string error = error_of([&] { Hdf5File::open_to_read(path).read("pieces", shape); });
  EXPECT_TRUE(contains(error, path.string()) && contains(error, "pieces has 17592186044416 items")) << error;
}

TEST_F(CheckpointTables, AVersionOfTheFutureIsRefused) {
  const fs::path index = temporary_.path() / "index.h5";
  const auto refusal = [&](const std::string& version) {
    auto file = Hdf5File::create(index);
    file.set_attribute("format_version", version);
    file.close();
    checkpoint::write_metadata_file(temporary_.path(), nlohmann::json::object());
    return error_of_load(temporary_.path(), plain_states(DType::f32));
  };
  const int newest = checkpoint::newest_version;
  const std::string error = refusal(std::to_string(newest + 1));
  EXPECT_TRUE(contains(error, index.string()) && contains(error, fmt::format("version {}", newest + 1)) &&
              contains(error, fmt::format("versions 1 to {}", newest)))
      << error;
  EXPECT_TRUE(contains(refusal(std::string(5000, 'n')), std::string(20, 'n') + "..., this program reads"));
}

}  // namespace
}  // namespace ztrain::checkpoint_tables_test
