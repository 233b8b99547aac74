#include "train/resume.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/format/damaged.hpp"
#include "checkpoint/hf/export_folder.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/verify.hpp"
#include "config/validate/validate.hpp"
#include "job/require_checkpoint.hpp"
#include "job/saved_course.hpp"
#include "job/weights.hpp"
#include "train/export_model.hpp"
#include "train/frozen_weights.hpp"
#include "train/output_folder.hpp"
#include "train/resume_notes.hpp"

namespace ztrain::train {
namespace {

data::FileLists files_of(const std::vector<data::RowSet>& train) {
  data::FileLists lists;
  for (const data::RowSet& set : train) {
    lists.emplace_back();
    for (const data::FilePart& part : set.parts) lists.back().push_back(part.files);
  }
  return lists;
}

/// Opens the data in the parts in which the run of a checkpoint has them. Files that are new to it are a part
/// of their own, if the others are still what they were.
void open_as_saved(Run& run, const data::Course& saved) {
  if (saved.sources.empty()) return;
  const auto open = [&](const data::FileLists& lists) {
    if (lists != files_of(run.data.train))
      run.data = data::open_datasets(run.deck, data::hear_nothing, lists);
  };
  data::FileLists lists = data::files_as_in(saved, run.data.train);
  open(lists);
  for (std::size_t s = 0; s < lists.size(); ++s) {
    if (lists[s].size() == 1 || data::source_that_goes_on(saved, run.data.train[s]) >= 0) continue;
    for (; lists[s].size() > 1; lists[s].pop_back())
      lists[s].front().insert(lists[s].front().end(), lists[s].back().begin(), lists[s].back().end());
    std::ranges::sort(lists[s].front());
  }
  open(lists);
}

/// Returns the passes over the data that the run has made, if an epoch is `rows` long now and was `before`.
double epochs_over(double epochs, std::int64_t before, std::int64_t rows) {
  constexpr double rounding = 1e-9;
  const double complete = std::max(0.0, std::ceil(epochs - rounding) - 1);
  return complete + (epochs - complete) * static_cast<double>(before) / static_cast<double>(rows);
}

/// Sets the order of the data, and the length of the run, behind the samples of a checkpoint. A checkpoint of
/// a version that could not change its data has no course: that of a new run is its own, if the data are.
DataCourse set_course(Run& run, job::Restored& restored) {
  job::Progress& p = run.progress;
  data::Course& saved = restored.progress.course;
  const config::Deck& before = restored.changes.before;
  if (saved.sources.empty() && !restored.other_data) saved = data::course_of(run.data.train);
  const bool known = !saved.sources.empty();
  const bool same_seed = before.run.seed == run.deck.run.seed;
  bool any_goes_on = false, all_go_on = true;
  for (const data::RowSet& set : run.data.train) {
    const bool goes_on = same_seed && data::source_that_goes_on(saved, set) >= 0;
    any_goes_on = any_goes_on || goes_on;
    all_go_on = all_go_on && goes_on;
  }
  p.course = known ? data::next_course(saved, before, p.samples, run.deck, run.data.train)
                   : data::course_of(run.data.train);
  if (!known) p.course.from = p.samples;
  const std::int64_t rows = p.course.rows(), rows_before = known ? saved.rows() : rows;
  const bool changed = !all_go_on || rows != rows_before || restored.changes.has("batch.global") ||
                       restored.changes.has("data.weights");
  if (changed) {
    const double epochs = config::epochs_of(p.samples, rows_before, p.earlier);
    p.earlier = {p.step, p.samples, config::tokens_of(before, p.samples, p.earlier),
                 any_goes_on ? epochs_over(epochs, rows_before, rows) : 0};
  }
  run.sampler = data::make_sampler(run.deck, run.data, p.course);
  run.facts.steps = config::total_steps(run.deck, rows, p.earlier);
  return changed ? DataCourse::changed : DataCourse::same;
}

/// Facts of a checkpoint besides the states that it holds.
struct LoadedCheckpoint {
  std::string note;  ///< text on how the run goes on
  checkpoint::Loaded states{};
  std::optional<checkpoint::FrozenBase> frozen = {};
};

/// Loads a checkpoint.
LoadedCheckpoint load_checkpoint(Run& run, const std::string& path, telemetry::Phase& phase) {
  const nlohmann::json metadata = checkpoint::read_metadata(path);
  open_as_saved(run, job::course_of(metadata, path));
  job::Restored restored = job::from_metadata(metadata, run.deck, data::identity_of(run.data), path);
  const job::Progress now = std::exchange(run.progress, restored.progress);
  const DataCourse course = set_course(run, restored);
  const std::string changes = run.session.rank() == 0 ? notes_on_changes(run, restored, course) : "";
  run.progress.run_steps = run.facts.steps;
  require_export(run);
  const auto& job = run.worker.job();
  const auto shards = run.worker.state(true);
  LoadedCheckpoint loaded{.note = "", .frozen = checkpoint::frozen_base_of(metadata, path)};
  loaded.states = checkpoint::load(
      path, job::place_of(job.load(), job.layout), shards,
      {.cache = run.deck.mesh.replicate == 1 ? checkpoint::PageCache::past : checkpoint::PageCache::through,
       .progress = [&](std::int64_t done, std::int64_t total) { phase.at(share_of(done, total, "read")); }});
  run.skipped_steps = job::SkippedSteps(run.deck, &run.progress.loss_scaler, run.progress.skipped_in_a_row);
  run.progress.products = now.products;
  run.progress.processor = now.processor;
  loaded.note = restored.note + job::note_of(restored.progress.products, now.products) +
                job::note_of_processor(restored.progress.processor, now.processor) + changes;
  return loaded;
}

/// Collective. Returns at rank 0 the names that any rank has.
std::set<std::string> of_all_ranks(const std::set<std::string>& names) {
  std::set<std::string> all;
  for (const std::string& text :
       checkpoint::Group::world().gather_text(fmt::format("{}", fmt::join(names, ", "))))
    if (!text.empty()) all.insert(text);
  return all;
}

/// Collective. Tries to load a checkpoint. Returns what is wrong with it on any rank, or "" if all ranks have
/// loaded it.
std::string try_checkpoint(Run& run, const std::string& path, Checkpoints& known) {
  telemetry::Phase phase(run.console, "reading the checkpoint", [&run] { return run.worker.position(); });
  const job::Progress before = run.progress;
  std::string damage;
  LoadedCheckpoint loaded;
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
    look([&] { loaded = load_checkpoint(run, path, phase); });
    damage = run.agreed(damage);
  }
  if (!damage.empty()) {
    run.progress = before;
    return damage;
  }
  run.console.print(loaded.note + note_on_states(of_all_ranks(loaded.states.anew)));
  FrozenWeights(run).restore(path, loaded.states.has_all, loaded.frozen);
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

}  // namespace

/// Throws Error if the run could not be exported at its end, before minutes of reading.
void require_export(const Run& run) {
  const std::string& folder = run.deck.checkpoint.export_to;
  if (run.session.rank() != 0 || folder.empty() || run.is_complete()) return;
  require_exportable(run.deck);
  make_writable(checkpoint::ExportFolder::final_path(folder).parent_path(), "checkpoint.export");
}

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

}  // namespace ztrain::train
