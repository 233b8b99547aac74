// What a run reads before its first step.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/damaged.hpp"
#include "checkpoint/hf/export_folder.hpp"
#include "checkpoint/verify.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "job/require_checkpoint.hpp"
#include "job/require_memory.hpp"
#include "job/weights.hpp"
#include "optim/schedule.hpp"
#include "train/export_model.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {
namespace {

/// The newest checkpoint that a longer run would have written as well, since its learning rate did not fall
/// yet.
std::string before_decay(const config::Deck& deck, const job::Progress& progress) {
  const std::int64_t decay = progress.run_steps - deck.schedule.decay;
  for (const auto& path : checkpoint::list(config::checkpoint_folder(deck)))
    if (checkpoint::step_of(path) - (progress.step - progress.optimizer_steps) <= decay)
      return fmt::format("go on from the checkpoint before its decay (checkpoint.resume = \"{}\")",
                         path.string());
  return fmt::format("go on from a checkpoint before its decay, up to step {}, of which none is left in {}",
                     decay, config::checkpoint_folder(deck));
}

/// A run of another length has another schedule, and the learning rate jumps.
std::string note_schedule(const config::Deck& deck, const job::Progress& progress, std::int64_t steps) {
  const std::int64_t t = progress.optimizer_steps, was = progress.run_steps;
  const auto rate = [&](std::int64_t step, std::int64_t length) {
    return optim::learning_rate(deck.schedule, deck.optimizer.lr, step, length);
  };
  if (was == 0 || was == steps || t == 0 || progress.step >= steps || rate(t, was) == rate(t, steps))
    return "";
  return fmt::format(
      "warning: the run was {} steps long and is {} now: the learning rate, {:.2e} in the step before, goes "
      "on with {:.2e}, that of schedule.name = \"{}\" over the new length; for a schedule without a jump "
      "{}\n",
      was, steps, rate(t - 1, was), rate(t, steps), deck.schedule.name,
      optim::needs_decay(deck.schedule)
          ? before_decay(deck, progress)
          : "leave the length as it was, or start a new run from these weights (model.from)");
}

constexpr int most_ranks_listed = 8;

/// What one rank has read, and its resident memory. All members are 8 bytes: ranks exchange it as it is.
struct Reading {
  std::int64_t bytes = 0;    ///< of the files
  std::int64_t weights = 0;  ///< what they are in this rank's memory
  std::int64_t before = 0, after = 0, peak = 0;
};

std::string line_of(std::size_t rank, const Reading& r) {
  return fmt::format("  rank {}: {} of weights; resident memory {} before, {} after, {} at its peak\n", rank,
                     format_bytes(r.weights), format_bytes(r.before), format_bytes(r.after),
                     format_bytes(r.peak));
}

std::string report_of(const std::vector<Reading>& all, double seconds) {
  double bytes = 0;
  for (const Reading& r : all) bytes += static_cast<double>(r.bytes);
  std::string lines = fmt::format("{} read in {:.1f} s, {:.2f} GB/s over all ranks\n", format_bytes(bytes),
                                  seconds, seconds > 0 ? bytes / seconds * 1e-9 : 0.0);
  if (static_cast<int>(all.size()) <= most_ranks_listed) {
    for (std::size_t r = 0; r < all.size(); ++r) lines += line_of(r, all[r]);
    return lines;
  }
  const auto most = std::ranges::max_element(all, {}, &Reading::peak);
  return lines + line_of(static_cast<std::size_t>(most - all.begin()), *most);
}

}  // namespace

/// In the order in which they are tried. Rank 0 alone looks: a shared file system may show ranks different
/// states of a folder.
std::vector<std::string> Trainer::checkpoints_to_resume() const {
  const std::string& resume = deck_.checkpoint.resume;
  if (resume == "none") return {};
  if (resume != "auto") {
    session_.agree("looking for the checkpoint", [&] { job::require_checkpoint_to_resume(resume); });
    return {resume};
  }
  const std::string steps =
      session_.from_rank_0(session_.agree("looking for checkpoints", [&]() -> std::string {
        std::vector<std::string> names;
        if (session_.rank() == 0)
          for (const auto& path : checkpoint::list(config::checkpoint_folder(deck_)))
            names.push_back(path.filename().string());
        return fmt::format("{}", fmt::join(names, "/"));
      }));
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin < steps.size();
       begin = std::min(steps.find('/', begin), steps.size()) + 1)
    paths.push_back(fmt::format("{}/{}", config::checkpoint_folder(deck_),
                                steps.substr(begin, steps.find('/', begin) - begin)));
  return paths;
}

/// Goes on from the newest checkpoint that is sound, if there is any. A damaged one is never taken for none:
/// then the run would start anew.
bool Trainer::resumes() {
  for (std::vector<std::string> paths = checkpoints_to_resume(); !paths.empty();) {
    const std::string path = paths.front();
    const double start = now();
    const std::string damage = try_checkpoint(path);
    if (damage.empty()) {
      console_.print(
          fmt::format("goes on from checkpoint {} (step {}, {} sequences consumed, read in {:.2f} s)\n", path,
                      progress_.step, progress_.samples, now() - start));
      return true;
    }
    const std::string why = checkpoint::without_advice(damage);
    if (deck_.checkpoint.resume == "auto") {
      damaged_.insert(checkpoint::step_of(path));
      if (snapshots_) damaged_.erase(snapshots_->publish_newest(damaged_));
      paths = checkpoints_to_resume();
      std::erase_if(paths,
                    [&](const std::string& other) { return damaged_.contains(checkpoint::step_of(other)); });
    } else {
      paths.clear();
    }
    if (paths.empty()) throw runtime::AgreedError(fmt::format("{}; {}", why, checkpoint::advice));
    console_.print(fmt::format("warning: checkpoint {} is damaged; it stays as it is, and {} is taken: {}\n",
                               path, std::filesystem::path(paths.front()).filename().string(), why));
  }
  return false;
}

void Trainer::restore() {
  if (resumes()) return;
  const std::string& from = deck_.model.from;
  const std::string source = from.empty() ? fmt::format("the weights are drawn from seed {}", deck_.run.seed)
                                          : "the weights are read";
  console_.print(deck_.checkpoint.resume == "none"
                     ? "no checkpoint is read: checkpoint.resume = \"none\"\n"
                     : fmt::format("no checkpoint in {}: {}\n", config::checkpoint_folder(deck_), source));
  session_.agree("preparing the output folder", [&] { require_export(); });
  if (!from.empty()) return start_from_weights();
  const telemetry::Phase phase(console_, "drawing the weights", [this] { return worker_.position(); });
  worker_.initialize(static_cast<std::uint64_t>(deck_.run.seed));
}

/// Collective: reads the weights that model.from names, draws adapters that they lack, and makes the rest of
/// the state that of a new run. Says how it goes on, how fast it was, and what memory the operating system
/// counts for each rank before anything but the weights was touched.
void Trainer::start_from_weights() {
  telemetry::Phase phase(console_, "reading the weights", [this] { return worker_.position(); });
  const std::string& folder = deck_.model.from;
  console_.print(fmt::format("reading the weights of {}{}\n", folder,
                             config::is_checkpoint(folder) ? ", a checkpoint, and nothing else of it" : ""));
  const double start = now();
  Reading mine;
  mine.before = runtime::resident_bytes();
  const auto imported = session_.agree("reading the weights", [&] {
    return worker_.import_weights(folder,
                                  {.computed = deck_.precision.parameters,
                                   .leaves_head = config::is_explicit(deck_, "model.tie_word_embeddings"),
                                   .progress = [&](std::int64_t done, std::int64_t total) {
                                     phase.at(share_of(done, total, "read"));
                                   }});
  });
  mine.bytes = imported.bytes;
  mine.weights = worker_.weight_bytes();
  mine.after = runtime::resident_bytes();
  mine.peak = runtime::peak_resident_bytes();
  console_.print(report_of(runtime::of_all(session_, mine), now() - start));
  if (!imported.absent.empty())
    console_.print(
        fmt::format("{} adapter weights are drawn from seed {}\n", imported.absent.size(), deck_.run.seed));
  worker_.complete_import(imported, static_cast<std::uint64_t>(deck_.run.seed));
}

void Trainer::begin_output() {
  if (deck_.checkpoint.interval >= 0) {
    const std::string aside =
        move_aside(config::checkpoint_folder(deck_), progress_.step, ".previous", damaged_);
    if (!aside.empty())
      console_.print(fmt::format("checkpoints beyond step {} are now in {}\n", progress_.step, aside));
  }
  write_resolved_deck();
  metrics_.emplace(deck_.run.output, progress_.step > 0 ? std::optional(progress_.step) : std::nullopt,
                   [this] { folders_.front().hold_again(); });
  if (!metrics_->previous().empty())
    console_.print(fmt::format("the metrics of the run before are now in {}\n", metrics_->previous()));
}

void Trainer::write_resolved_deck() const {
  write_text(std::filesystem::path(deck_.run.output) / resolved_deck_name, config::resolved_toml(deck_),
             "run.output");
}

/// Before minutes of reading.
void Trainer::require_export() const {
  const std::string& folder = deck_.checkpoint.export_to;
  if (session_.rank() != 0 || folder.empty() || progress_.step >= facts_.steps) return;
  require_exportable(deck_);
  make_writable(checkpoint::ExportFolder::final_path(folder).parent_path(), "checkpoint.export");
}

/// What is wrong with it, on any rank; "" where all have loaded it.
std::string Trainer::try_checkpoint(const std::string& path) {
  telemetry::Phase phase(console_, "reading the checkpoint", [this] { return worker_.position(); });
  const job::Progress before = progress_;
  std::string damage, note;
  const auto look = [&](auto work) {
    session_.agree("reading the checkpoint", [&] {
      try {
        work();
      } catch (const checkpoint::Damaged& e) {
        damage = e.what();
      }
    });
  };
  look([&] {
    if (session_.rank() == 0) checkpoint::require_sound(path);
  });
  damage = session_.from_rank_0(damage);
  if (damage.empty()) {
    look([&] { note = load_checkpoint(path, phase); });
    damage = agreed(damage);
  }
  if (!damage.empty()) {
    progress_ = before;
    return damage;
  }
  console_.print(note);
  worker_.derive_parameters();
  saved_state_ = {progress_.step, progress_.optimizer_steps};
  saved_ = path;
  return "";
}

/// Gives what a user is to know of how the run goes on.
std::string Trainer::load_checkpoint(const std::string& path, telemetry::Phase& phase) {
  const job::Restored restored =
      job::from_metadata(checkpoint::read_metadata(path), deck_, data::identity_of(data_), path);
  const job::Progress now = std::exchange(progress_, restored.progress);
  const std::string schedule = session_.rank() == 0 ? note_schedule(deck_, progress_, facts_.steps) : "";
  progress_.run_steps = facts_.steps;
  require_export();
  const auto& job = worker_.job();
  const auto shards = worker_.state(true);
  checkpoint::load(
      path, job::place_of(job.load(), job.layout), shards,
      {.cache = deck_.mesh.replicate == 1 ? checkpoint::PageCache::past : checkpoint::PageCache::through,
       .progress = [&](std::int64_t done, std::int64_t total) { phase.at(share_of(done, total, "read")); }});
  skipped_steps_ = job::SkippedSteps(deck_, &progress_.loss_scaler, progress_.skipped_in_a_row);
  progress_.products = now.products;
  progress_.processor = now.processor;
  return restored.note + job::note_of(restored.progress.products, now.products) +
         job::note_of_processor(restored.progress.processor, now.processor) + schedule;
}

}  // namespace ztrain::train
