// What a damaged, incomplete, foreign or full folder does to checkpoints. One rank.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace ztrain::checkpoint_files_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

constexpr std::int64_t large_head = 60001;  // lm_head spans several checksum blocks

class CheckpointFiles : public testing::Test {
 protected:
  CheckpointFiles()
      : layout_(awkward_parameters(1, large_head), {3, {1}}), place_{&layout_, Coordinate({}, 0)} {}

  fs::path save(std::int64_t step, std::int64_t salt = 0, int keep = 0) {
    Shards shards = filled(place_, DType::f32, salt);
    checkpoint::save(folder(), step, place_, shards.states(), {{"salt", salt}}, {0, keep});
    return folder() / ("step_" + std::to_string(step));
  }
  void expect_loads(const fs::path& path, std::int64_t salt = 0) {
    EXPECT_TRUE(filled(place_, DType::f32, salt) == loaded(path, place_, DType::f32)) << path;
  }
  std::string error_of_load(const fs::path& path, const Place& place) {
    return error_of([&] { loaded(path, place, DType::f32); });
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& path : checkpoint::list(folder())) found.push_back(path.filename().string());
    return found;
  }
  const fs::path& folder() const { return temporary_.path(); }

  TemporaryFolder temporary_;
  Layout layout_;
  Place place_;
};

using Names = std::vector<std::string>;

void flip_byte(const fs::path& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_F(CheckpointFiles, AFlippedBitIsFoundAndNamed) {
  const fs::path path = save(1);
  const checkpoint::Index index = checkpoint::read_index(path / "index.h5");
  for (const checkpoint::PieceRow& row : index.pieces) {
    const std::int64_t at = row.byte_offset + row.bytes() - 1;  // in the last block
    flip_byte(path / "shard_0000.h5", at);
    const std::string error = error_of_load(path, place_);
    EXPECT_TRUE(contains(error, "shard_0000.h5") && contains(error, "checksum") &&
                contains(error, index.catalog.parameters[static_cast<std::size_t>(row.parameter)].name) &&
                contains(error, "checkpoint.resume"))
        << error;
    EXPECT_NO_THROW(loaded(path, place_, DType::f32, false));
    flip_byte(path / "shard_0000.h5", at);
  }
  expect_loads(path);
}

TEST_F(CheckpointFiles, PartsOfAPieceAreVerifiedToo) {
  const fs::path path = save(1);
  const checkpoint::Index index = checkpoint::read_index(path / "index.h5");
  const auto& row = *std::max_element(index.pieces.begin(), index.pieces.end(),
                                      [](const auto& a, const auto& b) { return a.count < b.count; });
  ASSERT_GT(row.bytes(), 2 * checkpoint::checksum_block);
  flip_byte(path / "shard_0000.h5", row.byte_offset);
  int failed = 0;
  for (int shard = 0; shard < 8; ++shard) {
    const Layout eight(awkward_parameters(1, large_head), {3, {8}});
    failed += error_of_load(path, {&eight, Coordinate(test::mesh_of(1, 8, 1), shard)}) != "no error";
  }
  // The damaged block's readers fail, and no others.
  EXPECT_GE(failed, 1);
  EXPECT_LE(failed, 4);
}

TEST_F(CheckpointFiles, TruncatedAndMissingFilesAreNamed) {
  const fs::path path = save(1), shard = path / "shard_0000.h5", index = path / "index.h5";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  std::string error = error_of_load(path, place_);
  EXPECT_TRUE(contains(error, shard.string()) && contains(error, "truncated") && contains(error, "resume"))
      << error;
  fs::remove(shard);
  error = error_of_load(path, place_);
  EXPECT_TRUE(contains(error, shard.string()) && contains(error, "No such file") && contains(error, "resume"))
      << error;
  fs::resize_file(index, fs::file_size(index) / 2);
  error = error_of_load(path, place_);
  EXPECT_TRUE(contains(error, index.string()) && contains(error, "checksum") && contains(error, "resume"))
      << error;
  reseal(path);
  error = error_of_load(path, place_);
  EXPECT_TRUE(contains(error, index.string()) && contains(error, "HDF5") && contains(error, "resume"))
      << error;
  fs::remove(index);
  error = error_of_load(path, place_);
  EXPECT_TRUE(contains(error, index.string()) && contains(error, "no checkpoint")) << error;
  EXPECT_TRUE(contains(error_of([&] { checkpoint::read_metadata(path); }), index.string()));
}

TEST_F(CheckpointFiles, AnotherModelIsRefused) {
  const fs::path path = save(1);
  auto parameters = awkward_parameters(1, large_head);
  parameters[0].shape = {98, 13};
  const Layout reshaped(parameters, {3, {1}});
  std::string error = error_of_load(path, {&reshaped, Coordinate({}, 0)});
  EXPECT_TRUE(contains(error, "model.embed_tokens.weight") && contains(error, "[97, 13]") &&
              contains(error, "[98, 13]"))
      << error;
  parameters = awkward_parameters(1, large_head);
  parameters[5].name = "model.final_norm.weight";
  const Layout renamed(parameters, {3, {1}});
  error = error_of_load(path, {&renamed, Coordinate({}, 0)});
  EXPECT_TRUE(contains(error, "lacks 1 parameter of the model:\n  model.final_norm.weight\n")) << error;
  parameters = awkward_parameters(1, large_head);
  parameters.pop_back();
  const Layout smaller(parameters, {3, {1}});
  error = error_of_load(path, {&smaller, Coordinate({}, 0)});
  EXPECT_TRUE(contains(error, "that the model lacks:\n  lm_head.weight\n")) << error;
}

TEST_F(CheckpointFiles, OtherFrozenParametersAreRefusedUnlessStatesAreSkipped) {
  const fs::path path = save(1);
  auto parameters = awkward_parameters(1, large_head);
  parameters[2].trainable = false;
  const Layout frozen(parameters, {3, {1}});
  const Place place{&frozen, Coordinate({}, 0)};
  const std::string error = error_of_load(path, place);
  EXPECT_TRUE(contains(error, "1 parameters were frozen and are trained now, or the reverse: " +
                                  parameters[2].name + "; set model.trainable"))
      << error;
  const StateKinds weights{{"model", DType::f32}};
  EXPECT_NO_THROW(loaded(path, place, weights, {.others = checkpoint::OtherStates::skip}));
}

TEST_F(CheckpointFiles, AnotherOptimizerIsRefusedAndBothSidesNamed) {
  const fs::path path = save(1);
  const auto expect_refused = [&](const StateKinds& kinds, const std::string& wants,
                                  checkpoint::OtherStates others) {
    const std::string error = error_of([&] { loaded(path, place_, kinds, {.others = others}); });
    EXPECT_TRUE(
        contains(error, (path / "index.h5").string()) &&
        contains(error, "the states model, optimizer/exp_avg, optimizer/exp_avg_sq, and the run wants " +
                            wants + "; optimizer.name, and whether"))
        << error;
  };
  using enum checkpoint::OtherStates;
  const StateKinds momentum{{"model"}, {"optimizer/momentum_buffer"}};
  expect_refused(momentum, "model, optimizer/momentum_buffer", refuse);
  expect_refused(momentum, "model, optimizer/momentum_buffer", skip);
  expect_refused({{"model"}, {"optimizer/exp_avg"}}, "model, optimizer/exp_avg", refuse);
  expect_refused({{"model"}}, "model", refuse);  // an optimizer without states
  expect_refused(quantised_states(DType::f32),
                 "model, optimizer/exp_avg, optimizer/exp_avg.absmax, optimizer/exp_avg_sq, "
                 "optimizer/exp_avg_sq.absmax",
                 refuse);
}

TEST_F(CheckpointFiles, WeightsAloneAreReadOnRequest) {
  const fs::path path = save(1);
  const StateKinds weights{{"model", DType::bf16}};
  EXPECT_TRUE(filled(place_, weights) ==
              loaded(path, place_, weights, {.others = checkpoint::OtherStates::skip}));
  EXPECT_NO_THROW(checkpoint::load(path, place_, {})) << "a rank without units wants no state";
}

TEST_F(CheckpointFiles, LongMetadataComesBack) {
  Shards shards = filled(place_, DType::f32);
  const nlohmann::json metadata{{"deck", std::string(300000, 'x')}, {"loss", 0.1}, {"name", "\u00e9t\u00e9"}};
  checkpoint::save(folder(), 3, place_, shards.states(), metadata);
  EXPECT_EQ(checkpoint::read_metadata(folder() / "step_3"), metadata);
}

TEST_F(CheckpointFiles, UnfinishedSavesAreIgnoredAndRemovedByTheNext) {
  EXPECT_FALSE(checkpoint::newest(folder() / "nowhere").has_value());
  EXPECT_FALSE(checkpoint::newest(folder()).has_value());
  const fs::path path = save(3);
  fs::create_directory(folder() / "step_9.tmp");
  std::ofstream(folder() / "step_9.tmp" / "shard_0000.h5") << "half";
  EXPECT_EQ(checkpoint::newest(folder()), path);
  save(4);
  EXPECT_FALSE(fs::exists(folder() / "step_9.tmp"));
  EXPECT_EQ(names(), (Names{"step_4", "step_3"}));
}

TEST_F(CheckpointFiles, RetentionKeepsTheNewestAndWhatItDoesNotKnow) {
  for (const char* foreign : {"step_x", "step_007", "step_5.bak", "best", "step_"})
    fs::create_directory(folder() / foreign);
  std::ofstream(folder() / "step_2") << "a file";
  for (std::int64_t step : {8, 9, 10, 100}) save(step, step, 2);
  EXPECT_EQ(names(), (Names{"step_100", "step_10"}));
  for (const char* foreign : {"step_x", "step_007", "step_5.bak", "best", "step_", "step_2"})
    EXPECT_TRUE(fs::exists(folder() / foreign)) << foreign;
  expect_loads(folder() / "step_10", 10);
  // After going back to an older checkpoint the one just written stays, whatever its number.
  save(11, 11, 1);
  EXPECT_EQ(names(), (Names{"step_11"}));
}

/// While this lives, files of a folder cannot be removed by this process.
class Unremovable {
 public:
  explicit Unremovable(fs::path folder) : folder_(std::move(folder)), root_(::geteuid() == 0) {
    fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
    // Permissions do not bind root; nobody may still write beside the folder.
    if (root_) fs::permissions(folder_.parent_path(), fs::perms::all);
    if (root_) dropped_ = ::seteuid(65534) == 0;
  }
  Unremovable(const Unremovable&) = delete;
  Unremovable& operator=(const Unremovable&) = delete;
  ~Unremovable() {
    if (dropped_ && ::seteuid(0) != 0) std::abort();  // the other tests would run as nobody
    for (const auto& path : {folder_, fs::path(folder_.string() + ".tmp")}) {
      std::error_code absent;
      fs::permissions(path, fs::perms::owner_all, absent);
    }
  }
  bool works() const { return !root_ || dropped_; }

 private:
  fs::path folder_;
  bool root_, dropped_ = false;
};

TEST_F(CheckpointFiles, WhatCannotBeRemovedIsAWarning) {
  save(1, 1);
  {
    const Unremovable stuck(folder() / "step_1");
    if (!stuck.works()) GTEST_SKIP() << "cannot become another user: failing removals are NOT checked";
    Shards shards = filled(place_, DType::f32, 2);
    const auto save_one = [&](std::int64_t step) {
      return checkpoint::save(folder(), step, place_, shards.states(), {}, {0, 1}).warning;
    };
    const std::string first = save_one(2), second = save_one(3);
    for (const std::string& warning : {first, second})
      EXPECT_TRUE(contains(warning, "cannot be removed: Permission denied")) << warning;
    EXPECT_TRUE(contains(first, folder() / "step_1") && contains(second, folder() / "step_1.tmp"))
        << first << "\n"
        << second;
    EXPECT_EQ(names(), (Names{"step_3"}));
    expect_loads(folder() / "step_3", 2);
  }
  save(4, 3, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()), 1);
}

TEST_F(CheckpointFiles, ThatOfTheProvenStepStays) {
  save(1);
  save(2);
  save(3);
  Shards shards = filled(place_, DType::f32);
  checkpoint::save(folder(), 4, place_, shards.states(), {{"step", 4}}, {.keep = 1, .proven_step = 2});
  EXPECT_EQ(names(), (Names{"step_4", "step_2"}));
  expect_loads(folder() / "step_2");
  // Beyond what stays there is nothing while the next one is written, either.
  Names during;
  checkpoint::save(folder(), 5, place_, shards.states(), {}, {.keep = 1, .proven_step = 4},
                   [&](std::int64_t, std::int64_t) { during = names(); });
  EXPECT_EQ(during, (Names{"step_4"}));
  EXPECT_EQ(names(), (Names{"step_5", "step_4"}));
}

TEST_F(CheckpointFiles, ARepeatedStepIsReplaced) {
  save(5, 1);
  expect_loads(save(5, 2), 2);
  EXPECT_EQ(names(), (Names{"step_5"}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()), 1);
}

TEST_F(CheckpointFiles, ACrashBetweenTheRenamesOfAReplacementLosesNothing) {
  fs::rename(save(5, 1), folder() / "step_5.old");
  ASSERT_EQ(names(), (Names{"step_5.old"}));
  expect_loads(*checkpoint::newest(folder()), 1);
  save(6, 2);
  EXPECT_EQ(names(), (Names{"step_6", "step_5"}));
  expect_loads(folder() / "step_5", 1);
}

TEST_F(CheckpointFiles, IllegalOptionsAreRefused) {
  Shards shards = filled(place_, DType::f32);
  const auto error = [&](checkpoint::SaveOptions options) {
    return error_of([&] { checkpoint::save(folder(), 1, place_, shards.states(), {}, options); });
  };
  EXPECT_TRUE(contains(error({257, 0}), "checkpoint.files"));
  EXPECT_TRUE(contains(error({0, -1}), "checkpoint.keep"));
}

TEST_F(CheckpointFiles, FilesLargerThanTheProcessMayWriteAreRefused) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto saved_within = [&](rlim_t bytes) {
    const rlimit small{bytes, limit.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string error = error_of([&] { save(1); });
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    return error;
  };
  const std::string error = saved_within(1 << 16);
  EXPECT_TRUE(contains(error, "step_1.tmp/shard_0000.h5: it comes to ")) << error;
  EXPECT_TRUE(contains(error, "may write files of at most 65536: raise that limit (`ulimit -f ")) << error;
  EXPECT_EQ(names(), Names{});
  const std::size_t number = error.find("ulimit -f ");
  ASSERT_NE(number, std::string::npos);
  EXPECT_EQ(saved_within(1024 * std::stoul(error.substr(number + 10))), "no error") << error;
}

TEST_F(CheckpointFiles, H5pyReadsWholeTensors) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py: the virtual datasets are NOT checked";
  for (DType model : {DType::f32, DType::bf16}) {
    Shards shards = filled(place_, model);
    checkpoint::save(folder(), 1, place_, shards.states(), {{"step", 1}});
    const std::string read = python + " tests/support/read_checkpoint.py " + (folder() / "step_1").string();
    EXPECT_EQ(run(read + " whole"), 0);
    EXPECT_NE(run(read + " missing 2>/dev/null"), 0);
    fs::remove(folder() / "step_1" / "shard_0000.h5");
    EXPECT_EQ(run(read + " missing"), 0);
  }
}

/// A tmpfs of a given size, mounted while this lives.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& at) : at_(at) {
    fs::create_directories(at_);
    mounted_ = ::mount("ztrain-test", at_.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount(at_.c_str());
  }
  bool mounted() const { return mounted_; }
  void resize(std::int64_t bytes) const {
    const std::string size = "size=" + std::to_string(bytes);
    ASSERT_EQ(::mount("ztrain-test", at_.c_str(), "tmpfs", MS_REMOUNT, size.c_str()), 0);
  }

 private:
  fs::path at_;
  bool mounted_ = false;
};

TEST_F(CheckpointFiles, AFullDiskIsAnErrorAndKeepsWhatIsThere) {
  const SmallDisk disk(folder());
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small tmpfs (not root?): a full disk is NOT checked";
  const auto used = [&] {
    return static_cast<std::int64_t>(fs::space(folder()).capacity - fs::space(folder()).free);
  };
  disk.resize(std::int64_t{64} << 20);
  save(1);
  const std::int64_t one = used();
  int failed = 0, succeeded = 0;
  // From no room at all, over room for the bytes but not for the index, to enough.
  for (std::int64_t room : {0, 4096, 65536, 1 << 20, 4 << 20, 8 << 20}) {
    disk.resize(one + room);
    const std::string error = error_of([&] { save(2); });
    EXPECT_TRUE(contains(error, "step_2.tmp") || contains(error, "No space")) << room << ": " << error;
    EXPECT_FALSE(fs::exists(folder() / "step_2.tmp"));
    EXPECT_EQ(names(), (Names{"step_1"}));
    ++failed;
  }
  for (std::int64_t room = one - 30 * 4096; room <= one + 4 * 4096; room += 4096) {
    disk.resize(one + room);
    const std::string error = error_of([&] { save(2); });
    const bool is_saved = error == "no error";
    (is_saved ? succeeded : failed) += 1;
    expect_loads(folder() / "step_1");
    if (is_saved) expect_loads(folder() / "step_2");
    fs::remove_all(folder() / "step_2");
  }
  EXPECT_GT(succeeded, 0);
  EXPECT_GT(failed, 6);
}

}  // namespace
}  // namespace ztrain::checkpoint_files_test
