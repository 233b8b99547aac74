#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "checkpoint/retention.hpp"
#include "config/adapters.hpp"
#include "config/architectures.hpp"
#include "config/hf/reward_model.hpp"
#include "config/hf/starting_point.hpp"
#include "config/validate/validate.hpp"
#include "job/require_checkpoint.hpp"
#include "job/require_memory.hpp"
#include "job/save_proof.hpp"
#include "plan/memory.hpp"
#include "runtime/device/device.hpp"
#include "train/frozen_weights.hpp"
#include "train/output_folder.hpp"
#include "train/resume.hpp"

namespace ztrain::train {
namespace {

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

/// Collective. Reads the weights that model.from names, draws missing adapters or routers, and initialises
/// the rest of the state. Prints how the run goes on, how fast it read, and each rank's resident memory
/// before anything but the weights was touched.
void start_from_weights(Run& run) {
  telemetry::Phase phase(run.console, "reading the weights", [&run] { return run.worker.position(); });
  const std::string& folder = run.deck.model.from;
  run.print("reading the weights of {}{}{}\n", folder,
            run.deck.model.base.empty() ? "" : fmt::format(" beside those of {}", run.deck.model.base),
            config::is_checkpoint(folder) ? ", a checkpoint, and nothing else of it" : "");
  const double start = now();
  Reading mine;
  mine.before = runtime::resident_bytes();
  FrozenWeights frozen(run);
  const auto imported = run.session.agree("reading the weights", [&] {
    checkpoint::ImportOptions options = checkpoint::import_options(run.deck);
    options.progress = [&](std::int64_t done, std::int64_t total) {
      phase.at(share_of(done, total, "read"));
    };
    options.frozen = frozen.hashes();
    return run.worker.import_weights(folder, options);
  });
  mine.bytes = imported.bytes + frozen.quantize();
  mine.weights = run.worker.weight_bytes();
  mine.after = runtime::resident_bytes();
  mine.peak = runtime::peak_resident_bytes();
  run.console.print(report_of(runtime::of_all(run.session, mine), now() - start));
  const bool head = std::ranges::count(imported.absent, config::score_weight) > 0;
  if (head) run.print("the head ({}) is drawn from seed {}\n", config::score_weight, run.deck.run.seed);
  const auto is_drawn = [](const std::string& name) {
    return name != config::score_weight && config::magnitude_of(name).empty();
  };
  if (const auto drawn = std::ranges::count_if(imported.absent, is_drawn); drawn > 0)
    run.print("{} {} drawn from seed {}\n",
              count_text(drawn, run.deck.model.upcycled ? "router tensor" : "adapter tensor"),
              drawn == 1 ? "is" : "are", run.deck.run.seed);
  frozen.start_magnitudes(imported);
  run.worker.complete_import(imported, static_cast<std::uint64_t>(run.deck.run.seed));
  frozen.imported(imported);
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
  run.progress.course = data::course_of(run.data.train);
  if (!from.empty()) return start_from_weights(run);
  const telemetry::Phase phase(run.console, "drawing the weights", [&run] { return run.worker.position(); });
  run.worker.initialize(static_cast<std::uint64_t>(run.deck.run.seed));
  FrozenWeights(run).drawn();
}

/// Looks for a disk without room before anything is trained that could be lost. Older checkpoints make room
/// if there are any.
void prepare_for_saves(Run& run, TimeLimits& limits) {
  constexpr double slow = 1e8;  // bytes a second of a rank, until a save has been measured
  constexpr std::int64_t beside_tensors = 128 * 1024;  // bytes that index, deck and metrics take at least
  if (run.deck.checkpoint.interval < 0 || run.is_complete()) return;
  const Layout& layout = run.worker.job().layout;
  const double bytes = plan::checkpoint_bytes(run.deck, layout.saved_count(), plan::trained_of(layout));
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
  const bool nccl = runtime::built_for_gpus() && !run.worker.mesh().backend().staged();
  const std::vector<engine::Note> nodes = notes_on_nodes(session, nccl);
  run.console.print(session.agree("describing the run", [&] {
    return banner(session, run.deck, run.data, run.worker, run.facts, run.version, nodes);
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
  run.was_complete = run.is_complete();
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
