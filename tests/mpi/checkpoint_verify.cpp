// What verify() finds. One rank.
#include "checkpoint/verify.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoint/format/damaged.hpp"
#include "checkpoint/format/format.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace ztrain::checkpoint_verify_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

/// Does the same again undoes it.
void flip_bit(const fs::path& path, std::int64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(bit / 8);
  const int byte = file.get();
  file.seekp(bit / 8);
  file.put(static_cast<char>(byte ^ 1 << bit % 8));
}

class CheckpointVerify : public testing::Test {
 protected:
  CheckpointVerify() { path_ = save(quantised_states(DType::bf16)); }

  fs::path save(const StateKinds& kinds, std::int64_t head = 1001) {
    const Layout layout(awkward_parameters(1, head), {3, {1}});
    const Place place{&layout, Coordinate({}, 0)};
    Shards shards = filled(place, kinds);
    const nlohmann::json metadata{{"step", 1}, {"rate", 1e-30}, {"deck", "[run]\nsteps = 1\n"}};
    checkpoint::save(temporary_.path(), 1, place, shards.states(), metadata);
    return temporary_.path() / "step_1";
  }
  std::vector<std::string> faults() const { return checkpoint::verify(path_).faults; }

  TemporaryFolder temporary_;
  fs::path path_;
};

TEST_F(CheckpointVerify, ASoundOneHasNoFaults) {
  const checkpoint::Verified verified = checkpoint::verify(path_);
  EXPECT_TRUE(verified.faults.empty()) << verified.faults.front();
  EXPECT_TRUE(verified.others.empty() && verified.covers_all);
  EXPECT_EQ(verified.files, 3);
  EXPECT_EQ(verified.tensors, 5 * 9);
  std::int64_t bytes = 0;
  for (const auto& row : checkpoint::read_index(path_ / "index.h5").pieces) bytes += row.bytes();
  EXPECT_EQ(verified.bytes, bytes);
  EXPECT_NO_THROW(checkpoint::require_sound(path_));
}

TEST_F(CheckpointVerify, FindsEachOfAThousandFlippedBits) {
  std::mt19937_64 random(20);
  const std::vector<std::string> names{"shard_0000.h5", "index.h5", "metadata.json"};
  for (int flip = 0; flip < 1000; ++flip) {
    const std::string& name = names[static_cast<std::size_t>(flip) % names.size()];
    const fs::path file = path_ / name;
    const auto bit = static_cast<std::int64_t>(random() % (8 * fs::file_size(file)));
    flip_bit(file, bit);
    const auto found = checkpoint::verify(path_, {.only = name}).faults;
    flip_bit(file, bit);
    ASSERT_EQ(found.size(), 1) << "bit " << bit << " of " << name;
    // A flip of the checksum that metadata.json has of index.h5 may be either's.
    EXPECT_TRUE(contains(found.front(), name) || contains(found.front(), "metadata.json")) << found.front();
  }
  EXPECT_TRUE(faults().empty());
}

TEST_F(CheckpointVerify, WhatAResumeDoesNotReadIsVerifiedBeforeIt) {
  const auto index = checkpoint::read_index(path_ / "index.h5");
  const fs::path shard = path_ / "shard_0000.h5";
  flip_bit(shard, 8 * 700);  // of HDF5's
  const std::string error = error_of([&] { checkpoint::require_sound(path_); });
  EXPECT_TRUE(contains(error, shard.string()) && contains(error, "around its tensors")) << error;
  flip_bit(shard, 8 * 700);
  flip_bit(shard, 8 * index.pieces.front().byte_offset);
  EXPECT_NO_THROW(checkpoint::require_sound(path_));
  ASSERT_EQ(faults().size(), 1);
  EXPECT_TRUE(contains(faults().front(), "1 of 1 blocks of model.embed_tokens.weight (model)"))
      << faults().front();
  EXPECT_FALSE(contains(faults().front(), checkpoint::advice));
}

TEST_F(CheckpointVerify, AllThatIsWrongIsTold) {
  const auto index = checkpoint::read_index(path_ / "index.h5");
  for (const std::size_t piece : {0u, 7u})
    flip_bit(path_ / "shard_0000.h5", 8 * index.pieces[piece].byte_offset + 3);
  auto said = nlohmann::json::parse(std::ifstream(path_ / "metadata.json"));
  said["step"] = 2;
  std::ofstream(path_ / "metadata.json") << said;
  std::ofstream(path_ / "notes.txt") << "mine";
  EXPECT_EQ(faults().size(), 3);
  EXPECT_EQ(checkpoint::verify(path_).others, std::vector<std::string>{"notes.txt"});
  fs::remove(path_ / "shard_0000.h5");
  EXPECT_EQ(faults().size(), 2);
  fs::remove(path_ / "index.h5");
  ASSERT_EQ(faults().size(), 1);
  EXPECT_TRUE(contains(faults().front(), "index.h5: there is no such file")) << faults().front();
}

TEST_F(CheckpointVerify, PartsSeeAllBetweenThem) {
  path_ = save(plain_states(DType::f32), 80001);  // of several blocks
  const auto index = checkpoint::read_index(path_ / "index.h5");
  const auto& row = *std::ranges::max_element(index.pieces, {}, &checkpoint::PieceRow::count);
  flip_bit(path_ / "shard_0000.h5", 8 * (row.byte_offset + checkpoint::checksum_block));
  std::int64_t bytes = 0;
  std::size_t found = 0;
  for (int part = 0; part < 3; ++part) {
    const auto verified = checkpoint::verify(path_, {.only = {}, .part = part, .parts = 3});
    bytes += verified.bytes;
    found += verified.faults.size();
  }
  EXPECT_EQ(found, 1);
  EXPECT_EQ(bytes, checkpoint::verify(path_).bytes);
}

/// Such as versions before 5 wrote.
TEST_F(CheckpointVerify, OneWithoutChecksumsOfFramesIsSoundAsFarAsTheyGo) {
  auto index = checkpoint::read_index(path_ / "index.h5");
  index.files.front().frame.clear();
  checkpoint::write_index(path_ / "index.h5", index, checkpoint::read_metadata_text(path_ / "index.h5"));
  reseal(path_);
  auto said = nlohmann::json::parse(std::ifstream(path_ / "metadata.json"));
  said.erase("metadata_checksum");
  std::ofstream(path_ / "metadata.json") << said;
  EXPECT_NO_THROW(checkpoint::require_sound(path_));
  const auto verified = checkpoint::verify(path_);
  EXPECT_TRUE(verified.faults.empty()) << verified.faults.front();
  EXPECT_FALSE(verified.covers_all);
}

/// Also where JSON means the same.
TEST_F(CheckpointVerify, EachLetterOfMetadataCounts) {
  std::ifstream file(path_ / "metadata.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t exponent = text.find("1e-30");
  ASSERT_NE(exponent, text.npos);
  flip_bit(path_ / "metadata.json", 8 * static_cast<std::int64_t>(exponent + 1) + 5);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path_ / "metadata.json")), nlohmann::json::parse(text));
  ASSERT_EQ(faults().size(), 1);
  EXPECT_TRUE(contains(faults().front(), "checksum that it has of itself")) << faults().front();
}

TEST_F(CheckpointVerify, ChecksumsMayNotBeLeftOutOfMetadata) {
  auto said = nlohmann::json::parse(std::ifstream(path_ / "metadata.json"));
  said.erase("metadata_checksum");
  std::ofstream(path_ / "metadata.json") << said;
  ASSERT_EQ(faults().size(), 1);
  EXPECT_TRUE(contains(faults().front(), "it has no checksum of itself")) << faults().front();
  EXPECT_THROW(checkpoint::require_sound(path_), checkpoint::Damaged);
}

TEST_F(CheckpointVerify, OneThatIsNamedForAnotherStepIsNotSound) {
  const fs::path renamed = temporary_.path() / "step_7", other = temporary_.path() / "kept";
  fs::copy(path_, renamed, fs::copy_options::recursive);
  EXPECT_EQ(error_of([&] { checkpoint::require_sound(renamed); }),
            renamed.string() + ": was saved at step 1, and is named for another: rename it to step_1");
  fs::rename(renamed, other);
  checkpoint::require_sound(other);
}

/// A disk's failure reads like what is no file at all.
TEST_F(CheckpointVerify, FilesThatCannotBeReadAreDamaged) {
  const auto folder = [](const auto& path) { std::filesystem::create_directory(path); };
  const auto loop = [](const auto& path) { std::filesystem::create_symlink(path.filename(), path); };
  for (int i = 0; i < 6; ++i) {
    const char* const name =
        std::array{"metadata.json", "index.h5", "shard_0000.h5"}[static_cast<std::size_t>(i / 2)];
    std::filesystem::rename(path_ / name, path_ / "kept");
    i % 2 == 0 ? folder(path_ / name) : loop(path_ / name);
    try {
      checkpoint::require_sound(path_);
      ADD_FAILURE() << name;
    } catch (const checkpoint::Damaged& e) {
      EXPECT_TRUE(contains(e.what(), name)) << e.what();
    }
    std::filesystem::remove(path_ / name);
    std::filesystem::rename(path_ / "kept", path_ / name);
  }
  checkpoint::require_sound(path_);
}

}  // namespace
}  // namespace ztrain::checkpoint_verify_test
