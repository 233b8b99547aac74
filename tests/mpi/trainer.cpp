// Runs of a trainer, told by their metrics and checkpoints: which rows a step reads, which of its numbers
// count steps and how, what is evaluated and when, and what a run that goes on takes over.

#include "train/trainer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/text/load.hpp"
#include "tests/support/folder_of_ranks.hpp"

namespace {

/// What this process asks of, and reads from, the file that is watched.
struct FileCall {
  bool asks;
  long long begin, bytes;
};
std::string watched_file;
std::vector<FileCall> file_calls;

void note_call(int file, bool asks, off_t begin, std::size_t bytes) {
  if (watched_file.empty()) return;
  char path[4096];
  const auto size = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  if (size > 0 && std::string(path, static_cast<std::size_t>(size)) == watched_file)
    file_calls.push_back({asks, static_cast<long long>(begin), static_cast<long long>(bytes)});
}

}  // namespace

/// In place of the C library's in this executable.
extern "C" int posix_fadvise(int file, off_t begin, off_t bytes, int advice) noexcept {
  note_call(file, advice == POSIX_FADV_WILLNEED, begin, static_cast<std::size_t>(bytes));
  return ::syscall(SYS_fadvise64, file, begin, bytes, advice) == 0 ? 0 : errno;
}
extern "C" ssize_t pread(int file, void* out, std::size_t bytes, off_t begin) {
  note_call(file, false, begin, bytes);
  return ::syscall(SYS_pread64, file, out, bytes, begin);
}

namespace ztrain::trainer_test {
namespace {

using Words = std::vector<std::string>;

constexpr const char* base = R"([data]
train = ["train.txt"]
validation_fraction = 0
sequence = 16
[model]
hidden_size = 24
intermediate_size = 40
num_hidden_layers = 1
num_attention_heads = 2
vocab_size = 257
[precision]
preset = "fp32"
)";

/// A step moves no weight: the rate is the least that fp32 holds well, and eps keeps zeros zero.
const Words still{"--optimizer.lr=1e-37", "--optimizer.eps=1e9", "--optimizer.weight_decay=0"};

/// What a run leaves, as rank 0 reads it; others find nothing.
struct Left {
  std::map<std::int64_t, nlohmann::json> steps, evaluations;  ///< lines of metrics.jsonl, by step
  nlohmann::json checkpoint;                                  ///< metadata of the last

  std::vector<double> numbers(const char* key) const {
    std::vector<double> all;
    for (const auto& [step, line] : steps)
      all.push_back(line.at(key).is_null() ? NAN : line.at(key).get<double>());
    return all;
  }
};

class Trainers : public testing::Test {
 protected:
  Trainers() {
    if (test::session().rank() == 0) {
      std::uint32_t state = 1;
      for (const auto& [name, size] :
           {std::pair{"train.txt", 4000}, {"some.txt", 16 * 7 + 1}, {"more.txt", 16 * 3 + 1}})
        for (std::ofstream file(folder_.file(name)); file.tellp() < size; state = state * 1103515245 + 12345)
          file << static_cast<char>('a' + (state >> 16) % 23);
      std::ofstream(folder_.file("window.txt")) << "seventeen letters";
    }
    test::session().barrier();
  }

  Left run(const std::string& name, std::int64_t steps, Words words, const Words& more = {}) {
    const std::string output = folder_.file(name);
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--run.output=" + output, fmt::format("--run.steps={}", steps)});
    telemetry::Console silent;
    telemetry::Watchdog watchdog(0);
    train::Trainer(test::session(), silent, watchdog,
                   config::parse_deck(base, folder_.file("deck.toml"), words), "0")
        .run();
    return test::session().rank() == 0 ? read(output) : Left{};
  }
  std::string at(const std::string& name) const { return folder_.file(name); }
  static bool told() { return test::session().rank() == 0; }

 private:
  static Left read(const std::string& output) {
    Left left;
    std::ifstream file(output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json record = parse_json(line, "metrics");
      (record.contains("loss") ? left.steps : left.evaluations)[record.at("step")] = record;
    }
    if (const auto newest = checkpoint::newest(output + "/checkpoints"))
      left.checkpoint = checkpoint::read_metadata(*newest);
    return left;
  }

  test::FolderOfRanks folder_;
};

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], relative * expected[i]) << i;
}

/// All of a step's rows, before they are read: not those that are there already.
TEST_F(Trainers, AskForTheRowsOfTheNextStep) {
  file_calls.clear();
  watched_file = std::filesystem::canonical(at("train.txt")).string();
  run("ahead", 4, still, {"--batch.global=8", "--batch.micro=1"});
  watched_file.clear();
  int steps = 0;
  std::size_t i = 0;
  const auto bytes_of = [&](bool asks) {
    std::set<long long> bytes;
    for (; i < file_calls.size() && file_calls[i].asks == asks; ++i)
      for (long long at = 0; at < file_calls[i].bytes; ++at) bytes.insert(file_calls[i].begin + at);
    return bytes;
  };
  for (bytes_of(false); i < file_calls.size(); ++steps) {
    const std::set<long long> asked = bytes_of(true);
    EXPECT_EQ(asked, bytes_of(false));
  }
  EXPECT_EQ(steps, 3) << "no step comes behind the last";
}

TEST_F(Trainers, ReadEachRowOnceInWhateverBatches) {
  const Left one = run("one", 4, still, {"--batch.global=4", "--batch.micro=1"}),
             two = run("two", 4, still, {"--batch.global=4", "--batch.micro=2"}),
             wide = run("wide", 2, still, {"--batch.global=8", "--batch.micro=1"});
  if (!told()) return;
  const std::vector<double> losses = one.numbers("loss");
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_EQ(std::set<double>(losses.begin(), losses.end()).size(), 4u) << "each step has other rows";
  expect_near(two.numbers("loss"), losses, 1e-5);
  expect_near(wide.numbers("loss"), {(losses[0] + losses[1]) / 2, (losses[2] + losses[3]) / 2}, 1e-5);
  EXPECT_EQ(one.checkpoint.at("samples"), 16);
}

TEST_F(Trainers, DrawOtherMasksInEachStep) {
  const Words words{"--data.train=" + at("window.txt"), "--batch.global=2", "--lora.rank=4",
                    "--lora.random_base=true", "--lora.targets=[\"q_proj\", \"down_proj\"]"};
  for (const bool dropped : {false, true}) {
    Words all = words;
    all.insert(all.end(), still.begin(), still.end());
    const Left left =
        run(dropped ? "dropped" : "whole", 3, all, {dropped ? "--lora.dropout=0.5" : "--lora.dropout=0"});
    if (!told()) continue;
    const std::vector<double> norms = left.numbers("grad_norm");
    EXPECT_EQ(std::set<double>(norms.begin(), norms.end()).size(), dropped ? 3u : 1u)
        << "all steps have the same rows and the same weights";
  }
}

/// The first step moves each weight by the rate alone, whatever the betas: corrected, both moments are those
/// of one gradient.
TEST_F(Trainers, CorrectEachMomentByItsOwnBeta) {
  const Words words{"--batch.global=4", "--optimizer.weight_decay=0", "--optimizer.lr=0.01",
                    "--optimizer.eps=1e-12"};
  const Left near = run("near", 2, words, {"--optimizer.betas=[0.9, 0.9]"}),
             far = run("far", 2, words, {"--optimizer.betas=[0.5, 0.999]"});
  if (!told()) return;
  expect_near(far.numbers("loss"), near.numbers("loss"), 1e-4);
  EXPECT_GT(near.numbers("loss")[0] - near.numbers("loss")[1], 1e-2) << "the step does something";
}

/// fp16 at a scale that its gradients leave: the scale falls and the step counts for nothing.
TEST_F(Trainers, SkippedStepsCountNeitherInScheduleNorScale) {
  const Words words{"--precision.preset=deepspeed-fp16",
                    "--batch.global=4",
                    "--schedule.warmup=14",
                    "--loss_scaling.initial_scale_power=28",
                    "--loss_scaling.hysteresis=1",
                    "--optimizer.lr=1e-3",
                    "--schedule.name=constant"};
  const Left straight = run("straight", 30, words), half = run("halves", 15, words),
             other_half = run("halves", 30, words);
  if (!told()) return;
  std::int64_t taken = 0;
  for (const auto& [step, line] : straight.steps) {
    EXPECT_NEAR(line.at("lr").get<double>(), 1e-3 * std::min(1.0, static_cast<double>(taken + 1) / 14), 1e-9)
        << step;
    if (!line.at("grad_norm").is_null()) ++taken;
  }
  EXPECT_GT(taken, 2);
  EXPECT_LT(taken, 28);
  EXPECT_EQ(straight.checkpoint.at("optimizer_steps"), taken);
  // A run that goes on has the scale, the place in schedule and data, and the weights of one that was not
  // cut.
  EXPECT_LT(half.checkpoint.at("loss_scaler").at("scale"), std::ldexp(1.0, 28));
  for (const char* key : {"loss_scaler", "optimizer_steps", "samples"})
    EXPECT_EQ(other_half.checkpoint.at(key), straight.checkpoint.at(key)) << key;
  EXPECT_EQ(other_half.steps.at(30).at("loss"), straight.steps.at(30).at("loss"));
}

TEST_F(Trainers, EvaluateEveryRowAndEachTokenAlike) {
  const Words words{"--batch.global=12", "--evaluation.interval=1", "--evaluation.batches=100",
                    fmt::format("--data.validation=[\"{}\", \"{}\"]", at("some.txt"), at("more.txt"))};
  std::map<int, nlohmann::json> found;
  for (const int micro : {1, 2, 6}) {
    const Left left = run(fmt::format("micro_{}", micro), 1, words,
                          {fmt::format("--batch.micro={}", micro), still[0], still[1], still[2]});
    if (told()) found[micro] = left.evaluations.at(1);
  }
  for (const auto& [micro, line] : found) {
    const double some = line.at("validation_losses").at("some"),
                 more = line.at("validation_losses").at("more");
    EXPECT_NEAR(some, found[1].at("validation_losses").at("some").get<double>(), 1e-6) << micro;
    EXPECT_NEAR(more, found[1].at("validation_losses").at("more").get<double>(), 1e-6) << micro;
    EXPECT_GT(std::abs(some - more), 1e-4);
    EXPECT_NEAR(line.at("validation_loss").get<double>(), (7 * some + 3 * more) / 10, 1e-6)
        << "7 and 3 windows";
  }
}

TEST_F(Trainers, EvaluateTheEndAndKeepTheBestLoss) {
  const Left left = run("evaluated", 5,
                        {"--batch.global=4", "--optimizer.lr=0.01", "--evaluation.interval=2",
                         "--data.validation=" + at("some.txt")});
  if (!told()) return;
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::int64_t> evaluated;
  for (const auto& [step, line] : left.evaluations) {
    evaluated.push_back(step);
    best = std::min(best, line.at("validation_loss").get<double>());
  }
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{2, 4, 5}));
  EXPECT_EQ(left.checkpoint.at("best_validation_loss"), best);
}

TEST_F(Trainers, StopAfterMinutesNotSeconds) {
  const double seconds = test::session().lasts();
  for (const auto& [limit, steps] : {std::pair{(seconds + 20) / 60, 3}, {1e-6, 1}}) {
    const Left left = run(fmt::format("limit_{}", steps), 3,
                          {"--batch.global=4", fmt::format("--run.max_minutes={}", limit)});
    if (!told()) continue;
    EXPECT_EQ(left.steps.size(), static_cast<std::size_t>(steps)) << limit;
  }
}

}  // namespace
}  // namespace ztrain::trainer_test
