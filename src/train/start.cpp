#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/format/damaged.hpp"
#include "checkpoint/hf/export_folder.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/verify.hpp"
#include "config/architectures.hpp"
#include "config/hf/starting_point.hpp"
#include "config/validate/validate.hpp"
#include "job/require_checkpoint.hpp"
#include "job/require_memory.hpp"
#include "job/save_proof.hpp"
#include "job/weights.hpp"
#include "optim/schedule.hpp"
#include "plan/memory.hpp"
#include "train/export_model.hpp"
#include "train/output_folder.hpp"

namespace ztrain::train {
namespace {

/// Returns the advice to go on from the newest checkpoint from before the decay, which a longer run would
/// have written too.
std::string before_decay(const config::Deck& deck, const job::Progress& progress) {
  const std::int64_t decay = progress.run_steps - deck.schedule.decay;
  for (const auto& path : checkpoint::list(config::checkpoint_folder(deck)))
    if (checkpoint::step_of(path) - (progress.step - progress.optimizer_steps) <= decay)
      return fmt::format("go on from the checkpoint before its decay (checkpoint.resume = \"{}\")",
                         path.string());
  return fmt::format("go on from a checkpoint before its decay, up to step {}, of which none is left in {}",
                     decay, config::checkpoint_folder(deck));
}

/// Notes that a run of another length has another schedule, so that the learning rate jumps.
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

/// Bytes that one rank has read, and its resident memory. All members have 8 bytes, because ranks exchange
/// the struct as it is.
struct Reading {
  std::int64_t bytes = 0;    ///< bytes of files
  std::int64_t weights = 0;  ///< bytes of the weights in this rank's memory
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

/// Returns how long the run waits for folders that an earlier start of its job holds. If a node is cut off,
/// the job goes on without that node or is requeued. SLURM ends the ranks there only once it reaches them
/// again.
Patience patience_of(const Run& run) {
  constexpr double longest = 300;
  Patience patience;
  if (run.session.slurm().started_before())
    patience.seconds =
        run.deck.watchdog.timeout > 0 ? std::min(longest, run.deck.watchdog.timeout / 2) : longest;
  patience.told = [&console = run.console, seconds = patience.seconds,
                   told = false](const std::string& why) mutable {
    if (!std::exchange(told, true))
      console.print(fmt::format(
          "an earlier start of this job may not have ended yet; waiting up to {:.0f} s: {}\n", seconds, why));
  };
  return patience;
}

/// Throws Error if the run could not be exported at its end, before minutes of reading.
void require_export(const Run& run) {
  const std::string& folder = run.deck.checkpoint.export_to;
  if (run.session.rank() != 0 || folder.empty() || run.progress.step >= run.facts.steps) return;
  require_exportable(run.deck);
  make_writable(checkpoint::ExportFolder::final_path(folder).parent_path(), "checkpoint.export");
}

/// Loads a checkpoint. Returns text on how the run goes on.
std::string load_checkpoint(Run& run, const std::string& path, telemetry::Phase& phase) {
  const job::Restored restored =
      job::from_metadata(checkpoint::read_metadata(path), run.deck, data::identity_of(run.data), path);
  const job::Progress now = std::exchange(run.progress, restored.progress);
  const std::string schedule =
      run.session.rank() == 0 ? note_schedule(run.deck, run.progress, run.facts.steps) : "";
  run.progress.run_steps = run.facts.steps;
  require_export(run);
  const auto& job = run.worker.job();
  const auto shards = run.worker.state(true);
  checkpoint::load(
      path, job::place_of(job.load(), job.layout), shards,
      {.cache = run.deck.mesh.replicate == 1 ? checkpoint::PageCache::past : checkpoint::PageCache::through,
       .progress = [&](std::int64_t done, std::int64_t total) { phase.at(share_of(done, total, "read")); }});
  run.skipped_steps = job::SkippedSteps(run.deck, &run.progress.loss_scaler, run.progress.skipped_in_a_row);
  run.progress.products = now.products;
  run.progress.processor = now.processor;
  return restored.note + job::note_of(restored.progress.products, now.products) +
         job::note_of_processor(restored.progress.processor, now.processor) + schedule;
}

/// Collective. Tries to load a checkpoint. Returns what is wrong with it on any rank, or "" if all ranks have
/// loaded it.
std::string try_checkpoint(Run& run, const std::string& path, Checkpoints& known) {
  telemetry::Phase phase(run.console, "reading the checkpoint", [&run] { return run.worker.position(); });
  const job::Progress before = run.progress;
  std::string damage, note;
  const auto look = [&](auto work) {
    run.session.agree("reading the checkpoint", [&] {
      try {
        work();
      } catch (const checkpoint::Damaged& e) {
        damage = e.what();
      }
    });
  };
  look([&] {
    if (run.session.rank() == 0) checkpoint::require_sound(path);
  });
  damage = run.session.from_rank_0(damage);
  if (damage.empty()) {
    look([&] { note = load_checkpoint(run, path, phase); });
    damage = run.agreed(damage);
  }
  if (!damage.empty()) {
    run.progress = before;
    return damage;
  }
  run.console.print(note);
  run.worker.derive_parameters();
  known.newest = {run.progress.step, run.progress.optimizer_steps};
  known.path = path;
  return "";
}

/// Returns checkpoints in the order in which they are tried. Rank 0 alone looks: a shared file system may
/// show ranks different states of a folder.
std::vector<std::string> checkpoints_to_resume(const Run& run) {
  const std::string& resume = run.deck.checkpoint.resume;
  if (resume == "none") return {};
  if (resume != "auto") {
    run.session.agree("looking for the checkpoint", [&] { job::require_checkpoint_to_resume(resume); });
    return {resume};
  }
  const std::string steps =
      run.session.from_rank_0(run.session.agree("looking for checkpoints", [&]() -> std::string {
        std::vector<std::string> names;
        if (run.session.rank() == 0)
          for (const auto& path : checkpoint::list(config::checkpoint_folder(run.deck)))
            names.push_back(path.filename().string());
        return fmt::format("{}", fmt::join(names, "/"));
      }));
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin < steps.size();
       begin = std::min(steps.find('/', begin), steps.size()) + 1)
    paths.push_back(fmt::format("{}/{}", config::checkpoint_folder(run.deck),
                                steps.substr(begin, steps.find('/', begin) - begin)));
  return paths;
}

/// Goes on from the newest sound checkpoint, and returns whether there is one. If all checkpoints are
/// damaged, throws: starting anew without being asked would hide that.
bool resumes(Run& run, const Snapshots& snapshots, Checkpoints& known) {
  for (std::vector<std::string> paths = checkpoints_to_resume(run); !paths.empty();) {
    const std::string path = paths.front();
    const double start = now();
    const std::string damage = try_checkpoint(run, path, known);
    if (damage.empty()) {
      run.print("goes on from checkpoint {} (step {}, {} sequences consumed, read in {:.2f} s)\n", path,
                run.progress.step, run.progress.samples, now() - start);
      return true;
    }
    const std::string why = checkpoint::without_advice(damage);
    if (run.deck.checkpoint.resume == "auto") {
      known.damaged.insert(checkpoint::step_of(path));
      snapshots.publish_newest(known.damaged);
      paths = checkpoints_to_resume(run);
      std::erase_if(paths, [&](const std::string& other) {
        return known.damaged.contains(checkpoint::step_of(other));
      });
    } else {
      paths.clear();
    }
    if (paths.empty()) throw runtime::AgreedError(fmt::format("{}; {}", why, checkpoint::advice));
    run.print("warning: checkpoint {} is damaged; it stays as it is, and {} is taken: {}\n", path,
              std::filesystem::path(paths.front()).filename().string(), why);
  }
  return false;
}

/// Collective. Reads the weights that model.from names, draws missing adapters or routers, and initialises
/// the rest of the state. Prints how the run goes on, how fast it read, and each rank's resident memory
/// before anything but the weights was touched.
void start_from_weights(Run& run) {
  telemetry::Phase phase(run.console, "reading the weights", [&run] { return run.worker.position(); });
  const std::string& folder = run.deck.model.from;
  run.print("reading the weights of {}{}\n", folder,
            config::is_checkpoint(folder) ? ", a checkpoint, and nothing else of it" : "");
  const double start = now();
  Reading mine;
  mine.before = runtime::resident_bytes();
  const auto imported = run.session.agree("reading the weights", [&] {
    return run.worker.import_weights(
        folder, {.computed = run.deck.precision.parameters,
                 .leaves_head = config::is_explicit(run.deck, "model.tie_word_embeddings"),
                 .added = checkpoint::added_rows(run.deck),
                 .may_lack = checkpoint::drawn_parameters(run.deck.model),
                 .architecture = &config::find_architecture(run.deck.model.family),
                 .progress = [&](std::int64_t done, std::int64_t total) {
                   phase.at(share_of(done, total, "read"));
                 }});
  });
  mine.bytes = imported.bytes;
  mine.weights = run.worker.weight_bytes();
  mine.after = runtime::resident_bytes();
  mine.peak = runtime::peak_resident_bytes();
  run.console.print(report_of(runtime::of_all(run.session, mine), now() - start));
  if (!imported.absent.empty())
    run.print("{} {} weights are drawn from seed {}\n", imported.absent.size(),
              run.deck.model.upcycled ? "router" : "adapter", run.deck.run.seed);
  run.worker.complete_import(imported, static_cast<std::uint64_t>(run.deck.run.seed));
}

void restore(Run& run, const Snapshots& snapshots, Checkpoints& known) {
  if (resumes(run, snapshots, known)) return;
  const std::string& from = run.deck.model.from;
  const std::string source = from.empty()
                                 ? fmt::format("the weights are drawn from seed {}", run.deck.run.seed)
                                 : "the weights are read";
  run.console.print(
      run.deck.checkpoint.resume == "none"
          ? "no checkpoint is read: checkpoint.resume = \"none\"\n"
          : fmt::format("no checkpoint in {}: {}\n", config::checkpoint_folder(run.deck), source));
  run.session.agree("preparing the output folder", [&] { require_export(run); });
  if (!from.empty()) return start_from_weights(run);
  const telemetry::Phase phase(run.console, "drawing the weights", [&run] { return run.worker.position(); });
  run.worker.initialize(static_cast<std::uint64_t>(run.deck.run.seed));
}

/// Looks for a disk without room before anything is trained that could be lost. Older checkpoints make room
/// if there are any.
void prepare_for_saves(Run& run, TimeLimits& limits) {
  constexpr double slow = 1e8;  // bytes a second of a rank, until a save has been measured
  constexpr std::int64_t beside_tensors = 128 * 1024;  // bytes that index, deck and metrics take at least
  if (run.deck.checkpoint.interval < 0 || run.progress.step >= run.facts.steps) return;
  const Layout& layout = run.worker.job().layout;
  const double bytes = plan::checkpoint_bytes(run.deck, layout.parameter_count(), layout.trained_count());
  const int writers = run.session.size() / run.worker.mesh().shape()[Axis::replicate];
  limits.expect_save(bytes / writers / slow);
  run.session.agree("preparing the output folder", [&] {
    const std::string folder = config::checkpoint_folder(run.deck);
    if (run.session.rank() == 0 && !checkpoint::newest(folder))
      checkpoint::require_room(folder, static_cast<std::int64_t>(bytes) + beside_tensors);
  });
}

}  // namespace

void start(Run& run, TimeLimits& limits, RunOutput& output, Snapshots& snapshots, Saves& saves) {
  const runtime::Session& session = run.session;
  run.console.print(session.agree("describing the run", [&] {
    return banner(session, run.deck, run.data, run.worker, run.facts, run.version);
  }));
  job::prove_saves(session, run.console, run.deck, run.worker.job());
  // The folder is held before a checkpoint is looked for, because a run that still writes there may write a
  // newer one.
  session.agree("preparing the output folder", [&] {
    if (session.rank() == 0) output.hold_folders(patience_of(run));
  });
  snapshots.open(patience_of(run));
  Checkpoints known;
  restore(run, snapshots, known);
  run.steps_at_start = run.progress.step;
  run.worker.take_room_for_copies();
  snapshots.clear();
  session.agree("preparing the output folder", [&] {
    if (session.rank() != 0) return;
    output.begin(known.damaged);
    // No save follows that would remove the remains of a run that was killed after its last save.
    if (run.is_complete() && run.deck.checkpoint.interval >= 0)
      for (const std::string& left : checkpoint::remove_remains(config::checkpoint_folder(run.deck)))
        run.print("warning: {}\n", left);
  });
  saves.begin_with(std::move(known));
  session.agree("preparing the output folder", [&] {
    const std::string folder = config::checkpoint_folder(run.deck);
    REQUIRE(
        run.deck.checkpoint.interval < 0 || std::filesystem::is_directory(folder),
        "checkpoint.folder: {} does not see '{}', which rank 0 has made: give a folder that all nodes share",
        session.host(), folder);
  });
  prepare_for_saves(run, limits);
}

}  // namespace ztrain::train
