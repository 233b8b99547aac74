// Runs of a trainer, told by their metrics and checkpoints: which rows a step reads, which of its numbers
// count steps and how, what is evaluated and when, and what a run that goes on takes over.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/trainer_runs.hpp"

namespace {

/// What this process asks of, and reads from, the file that is watched.
struct FileCall {
  bool asks;
  long long begin, bytes;
};
std::string watched_file;
std::vector<FileCall> file_calls;

std::string path_of(int file) {
  char path[4096];
  const auto size = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return {path, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

void note_call(int file, bool asks, off_t begin, std::size_t bytes) {
  if (!watched_file.empty() && path_of(file) == watched_file)
    file_calls.push_back({asks, static_cast<long long>(begin), static_cast<long long>(bytes)});
}

/// What threads beside training write while a test watches them, and what training does meanwhile.
struct BesideTraining {
  std::string rows;                   ///< the file whose rows training reads
  std::size_t threads = 0;            ///< of the process when training had begun: none is beside it
  std::atomic<int> rows_read = 0;     ///< by training
  std::atomic<int> rows_awaited = 0;  ///< that training is to read while the first write is held up
  std::atomic<int> writes_held = 0;
  std::atomic<int> held_in_vain = 0;  ///< of these, for whose end training waited
  std::mutex mutex;                   ///< guards steps: a save has several threads
  std::set<long long> steps;          ///< of what they wrote
};
BesideTraining* watched = nullptr;

std::size_t threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Waits until a condition holds, for ten seconds at most. Returns whether it holds.
template <class Condition>
bool comes_true(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return condition();
}

/// Notes a write of a thread beside training, and holds the first one up if rows are awaited.
void note_write(int file) {
  const std::string path = path_of(file);
  if (const auto at = path.find("/step_"); at != std::string::npos) {
    const std::lock_guard lock(watched->mutex);
    watched->steps.insert(std::stoll(path.substr(at + 6)));
  }
  const int awaited = watched->rows_awaited.exchange(0);
  if (awaited == 0) return;
  const int until = watched->rows_read + awaited;
  ++watched->writes_held;
  if (!comes_true([&] { return watched->rows_read >= until; })) ++watched->held_in_vain;
}

/// Training reads on once threads beside it have done what they can. Behind a write that was held up it does
/// not wait: a thread of this rank may wait for another rank's write, which is held up until that rank's
/// training has come as far.
void note_row(int file) {
  constexpr int begun = 12;  // some steps
  if (path_of(file) != watched->rows) return;
  if (++watched->rows_read == begun) watched->threads = threads_now();
  if (watched->rows_read <= begun) return;
  comes_true([] { return watched->writes_held > 0 || threads_now() <= watched->threads; });
}

bool is_beside_training() {
  return ::gettid() != ::getpid();
}

}  // namespace

/// In place of the C library's in this executable.
extern "C" int posix_fadvise(int file, off_t begin, off_t bytes, int advice) noexcept {
  note_call(file, advice == POSIX_FADV_WILLNEED, begin, static_cast<std::size_t>(bytes));
  return ::syscall(SYS_fadvise64, file, begin, bytes, advice) == 0 ? 0 : errno;
}
extern "C" ssize_t pread(int file, void* out, std::size_t bytes, off_t begin) {
  note_call(file, false, begin, bytes);
  if (watched != nullptr && !is_beside_training()) note_row(file);
  return ::syscall(SYS_pread64, file, out, bytes, begin);
}
extern "C" ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t begin) {
  if (watched != nullptr && is_beside_training()) note_write(file);
  return ::syscall(SYS_pwrite64, file, from, bytes, begin);
}

namespace ztrain::trainer_test {
namespace {

using test::Left;
using test::session;
using test::still;
using test::Words;

class Trainers : public test::TrainerRuns {
 protected:
  /// Runs a trainer while `threads` watches what is written beside training. The first write is held up until
  /// training has read so many rows.
  void run_beside(BesideTraining& threads, const std::string& name, std::int64_t steps, const Words& more,
                  int rows_awaited = 0) {
    threads.rows = std::filesystem::canonical(at("train.txt")).string();
    threads.rows_awaited = rows_awaited;
    Words words = still;
    words.insert(words.end(), {fmt::format("--batch.global={}", rows * session().size()), "--batch.micro=1",
                               "--checkpoint.keep=0"});
    watched = &threads;
    run(name, steps, words, more);
    watched = nullptr;
  }
  /// Number of rows that a rank reads for a step of run_beside.
  static constexpr int rows = 4;
  Words snapshots_every(int steps) const {
    return {"--checkpoint.memory_copies=1", fmt::format("--checkpoint.memory_interval={}", steps),
            "--checkpoint.memory_folder=" + folder_.path().string()};
  }
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
  const Words words{"--batch.global=12",
                    "--evaluation.interval=1",
                    still[0],
                    still[1],
                    still[2],
                    fmt::format("--data.validation=[\"{}\", \"{}\"]", at("some.txt"), at("more.txt"))};
  nlohmann::json whole;
  for (const auto& [micro, batches] : {std::pair{1, 100}, {2, 100}, {6, 100}, {1, 2}, {2, 2}}) {
    SCOPED_TRACE(testing::Message() << micro << " x " << batches);
    const Left left =
        run(fmt::format("micro_{}_{}", micro, batches), 1, words,
            {fmt::format("--batch.micro={}", micro), fmt::format("--evaluation.batches={}", batches)});
    if (!told()) continue;
    const nlohmann::json& line = left.evaluations.at(1);
    const double some = line.at("validation_losses").at("some"),
                 more = line.at("validation_losses").at("more");
    const int most = micro * batches * session().size();
    const int of_some = std::min(7, most), of_more = std::min(3, most), rows_read = of_some + of_more;
    EXPECT_NEAR(line.at("validation_loss").get<double>(), (of_some * some + of_more * more) / rows_read, 1e-6)
        << "windows of 16 tokens each";
    const auto told_of = left.text.find(" of 10 sequences"),
               own = left.text.find(fmt::format(" over {} of 10 sequences", rows_read));
    EXPECT_EQ(told_of != std::string::npos, rows_read < 10) << left.text;
    EXPECT_EQ(own != std::string::npos, rows_read < 10) << left.text;
    EXPECT_GT(std::abs(some - more), 1e-4);
    if (rows_read < 10) continue;
    if (whole.is_null()) whole = line.at("validation_losses");
    EXPECT_NEAR(some, whole.at("some").get<double>(), 1e-6);
    EXPECT_NEAR(more, whole.at("more").get<double>(), 1e-6);
  }
}

/// While a checkpoint or a snapshot is written steps are taken: the first write waits for some of them.
TEST_F(Trainers, GoOnWhileThreadsWrite) {
  for (const auto& [name, words] :
       {std::pair{"saves", Words{"--checkpoint.interval=10"}}, {"snapshots", snapshots_every(10)}}) {
    BesideTraining threads;
    run_beside(threads, name, 19, words, 4 * rows);
    if (told()) {
      EXPECT_EQ(threads.writes_held, 1) << name;
    }
    EXPECT_EQ(threads.held_in_vain, 0) << name << ": training waited";
  }
}

/// Whether the end, for which training waits, is written by threads too depends on the number of ranks.
TEST_F(Trainers, BeginWhatThreadsWriteAtEachInterval) {
  for (const auto& [name, words] :
       {std::pair{"saves", Words{"--checkpoint.interval=8"}}, {"snapshots", snapshots_every(8)}}) {
    BesideTraining threads;
    run_beside(threads, name, 24, words);
    threads.steps.erase(24);
    if (told()) {
      EXPECT_EQ(threads.steps, (std::set<long long>{8, 16})) << name;
    }
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

/// Weights do not move, so the loss of a step is the mean of its rows.
TEST_F(Trainers, GoOnWithAnotherBatchBehindTheRowsThatWereSeen) {
  const Left straight = run("four", 8, still, {"--batch.global=4"});
  run("wider", 4, still, {"--batch.global=4"});
  const Left wide =
      run("wider", 6, still, {"--batch.global=8", "--checkpoint.override=batch.global,run.steps"});
  if (!told()) return;
  const std::vector<double> losses = straight.numbers("loss");
  std::vector<double> expected(losses.begin(), losses.begin() + 4);
  expected.insert(expected.end(), {(losses[4] + losses[5]) / 2, (losses[6] + losses[7]) / 2});
  expect_near(wide.numbers("loss"), expected, 1e-5);
  EXPECT_EQ(wide.checkpoint.at("samples"), 32);
  EXPECT_EQ(wide.checkpoint.at("tokens"), 32 * 16);
  for (const char* key : {"tokens", "epoch"})
    EXPECT_EQ(wide.steps.at(6).at(key), straight.steps.at(8).at(key)) << key;
  EXPECT_NE(wide.text.find("  batch.global: 4 -> 8\n"), std::string::npos) << wide.text;
  EXPECT_NE(wide.text.find("no sequence of the epoch is repeated or left out"), std::string::npos)
      << wide.text;
}

/// Weights do not move, so that only the first evaluation is an improvement.
TEST_F(Trainers, EndAfterEvaluationsWithoutAnImprovementAndCountOn) {
  const Words words{"--batch.global=4", "--evaluation.interval=2", "--evaluation.patience=2",
                    "--data.validation=" + at("some.txt")};
  Words all = still;
  all.insert(all.end(), words.begin(), words.end());
  run("patient", 4, all);
  const Left left = run("patient", 20, all), again = run("patient", 20, all);
  if (!told()) return;
  EXPECT_EQ(left.steps.rbegin()->first, 6);
  EXPECT_EQ(left.checkpoint.at("step"), 6);
  EXPECT_EQ(left.checkpoint.at("best_step"), 2);
  EXPECT_FALSE(left.evaluations.at(4).contains("early_stop"));
  EXPECT_EQ(left.evaluations.at(6).at("early_stop"), true);
  EXPECT_EQ(left.evaluations.at(6).at("evaluations_without_improvement"), 2);
  EXPECT_NEAR(std::log(left.evaluations.at(6).at("perplexity").get<double>()),
              left.evaluations.at(6).at("validation_loss").get<double>(), 1e-12);
  EXPECT_NE(left.text.find("step 6: the run ends here: no loss of 2 evaluations in a row"), std::string::npos)
      << left.text;
  EXPECT_NE(again.text.find("nothing to do: the run ended at step 6"), std::string::npos) << again.text;
}

TEST_F(Trainers, CountSmallImprovementsAsNone) {
  const Words words{"--batch.global=4", "--evaluation.interval=1", "--evaluation.patience=2",
                    "--optimizer.lr=0.01", "--data.validation=" + at("some.txt")};
  const Left any = run("any", 5, words), large = run("large", 5, words, {"--evaluation.min_delta=9"});
  if (!told()) return;
  EXPECT_EQ(any.steps.rbegin()->first, 5);
  EXPECT_EQ(large.steps.rbegin()->first, 3);
  EXPECT_EQ(large.checkpoint.at("best_step"), 3) << "it is the lowest all the same";
}

TEST_F(Trainers, EvaluateWhatIsSavedIfTheBestIsKept) {
  const Words words{"--batch.global=4", "--evaluation.interval=4", "--checkpoint.interval=3",
                    "--data.validation=" + at("some.txt")};
  const Left none = run("none", 8, words), best = run("best", 8, words, {"--checkpoint.keep_best=1"});
  if (!told()) return;
  const auto steps_of = [](const Left& left) {
    std::vector<std::int64_t> steps;
    for (const auto& [step, line] : left.evaluations) steps.push_back(step);
    return steps;
  };
  EXPECT_EQ(steps_of(none), (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(steps_of(best), (std::vector<std::int64_t>{3, 4, 6, 8}));
}

TEST_F(Trainers, StopAfterMinutesNotSeconds) {
  const double seconds = session().lasts();
  for (const auto& [limit, steps] : {std::pair{(seconds + 20) / 60, 3}, {1e-6, 1}}) {
    const Left left = run(fmt::format("limit_{}", steps), 3,
                          {"--batch.global=4", fmt::format("--run.max_minutes={}", limit)});
    if (!told()) continue;
    EXPECT_EQ(left.steps.size(), static_cast<std::size_t>(steps)) << limit;
  }
}

}  // namespace
}  // namespace ztrain::trainer_test
