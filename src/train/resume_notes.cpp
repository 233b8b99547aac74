#include "train/resume_notes.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/validate/validate.hpp"
#include "data/rows/row_order.hpp"
#include "optim/schedule.hpp"

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
std::string note_on_length(const config::Deck& deck, const job::Progress& progress, std::int64_t steps) {
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

/// Says how the learning rate goes on behind optimizer step t, and where it ends.
std::string course_of_rate(const config::Deck& deck, std::int64_t t, std::int64_t steps) {
  const auto rate = [&](std::int64_t step) {
    return optim::learning_rate(deck.schedule, deck.optimizer.lr, step, steps);
  };
  const std::int64_t warmup = optim::warmup_steps(deck.schedule, steps);
  const std::string rises = t < warmup ? fmt::format("rises until optimizer step {} and then ", warmup) : "";
  if (optim::needs_decay(deck.schedule))
    return fmt::format("{}falls from step {} on, to {:.2e} at the end of the run, step {}", rises,
                       steps - deck.schedule.decay, rate(steps), steps);
  if (rate(steps) == rate(std::max(t, warmup))) return rises + "stays there";
  return fmt::format("{}falls to {:.2e} at the end of the run, step {}", rises, rate(steps), steps);
}

std::string note_on_schedule(const Run& run, const job::Restored& restored) {
  const config::Deck &before = restored.changes.before, &now = run.deck;
  const std::int64_t t = run.progress.optimizer_steps, steps = run.facts.steps,
                     was = restored.progress.run_steps > 0 ? restored.progress.run_steps : steps;
  return fmt::format(
      "schedule: step {} has a learning rate of {:.2e}, with the keys as they were {:.2e}\n  from there it "
      "{}\n",
      run.progress.step + 1, optim::learning_rate(now.schedule, now.optimizer.lr, t, steps),
      optim::learning_rate(before.schedule, before.optimizer.lr, t, was), course_of_rate(now, t, steps));
}

/// Says how one source goes on. `saved` is its course in the checkpoint; null: it has none, or other rows.
std::string how_source_goes_on(const data::SourceCourse& source, const data::SourceCourse* saved) {
  const std::int64_t rows = source.rows();
  if (saved == nullptr) return fmt::format("starts its first epoch over {}", count_text(rows, "sequence"));
  if (saved->parts.size() == source.parts.size()) return "goes on where it was";
  const std::int64_t old = saved->rows();
  const std::int64_t seen = data::RowOrder(*saved, 0).position(source.parts[saved->parts.size()].from).seen;
  std::vector<std::string> files;
  for (std::size_t part = saved->parts.size(); part < source.parts.size(); ++part)
    files.insert(files.end(), source.parts[part].files.begin(), source.parts[part].files.end());
  return fmt::format(
      "goes on with {} of {} ({}{}), and {} of the others that this epoch has not seen; none of the {} seen "
      "comes again before the next epoch, which is over all {}",
      count_text(rows - old, "sequence"), count_text(std::ssize(files), "new file"), files.front(),
      files.size() > 1 ? ", ..." : "", old - seen, seen, rows);
}

/// Says where a run ends whose length is not that of its deck alone, which the run has printed.
std::string note_on_earlier(const Run& run) {
  const std::int64_t steps = run.facts.steps;
  if (config::total_steps(run.deck, run.progress.course.rows()) == steps) return "";
  return fmt::format("length: the run ends at step {}: its batch or data changed behind step {}\n", steps,
                     run.progress.earlier.steps);
}

/// Returns the saved source that goes on as source `s` of the run, or null.
const data::SourceCourse* saved_source(const Run& run, const job::Restored& restored, std::size_t s) {
  const data::Course& saved = restored.progress.course;
  const std::int64_t number = restored.changes.before.run.seed == run.deck.run.seed
                                  ? data::source_that_goes_on(saved, run.data.train[s])
                                  : -1;
  return number < 0 ? nullptr : &saved.sources[static_cast<std::size_t>(number)];
}

std::string note_on_data(const Run& run, const job::Restored& restored) {
  const job::Progress& p = run.progress;
  const config::Deck &before = restored.changes.before, &now = run.deck;
  std::string text = fmt::format("data: {} ({} tokens) are consumed", count_text(p.samples, "sequence"),
                                 config::tokens_of(before, p.samples, restored.progress.earlier));
  const auto& known = restored.progress.course.sources;
  std::set<const data::SourceCourse*> go_on;
  std::string sources;
  for (std::size_t s = 0; s < p.course.sources.size(); ++s) {
    const data::SourceCourse* saved = saved_source(run, restored, s);
    go_on.insert(saved);
    sources += fmt::format("  {} {}\n", p.course.sources.size() > 1 ? p.course.sources[s].name : "data.train",
                           how_source_goes_on(p.course.sources[s], saved));
  }
  if (before.batch.global != now.batch.global)
    text += fmt::format("; steps take {} from here on, {} before", count_text(now.batch.global, "sequence"),
                        before.batch.global);
  text += "\n";
  // A source that begins may hold the texts of one that does not go on, which may have another name.
  const bool begins = go_on.erase(nullptr) > 0,
             again = known.empty() || (begins && go_on.size() < known.size());
  if (again && before.data.sequence != now.data.sequence)
    text += fmt::format("  sequences of {} tokens are cut anew into {}\n", before.data.sequence,
                        now.data.sequence);
  text += again ? "  texts that were seen may come again\n"
          : go_on.size() == known.size()
              ? "  no sequence of the epoch is repeated or left out\n"
              : "  no sequence of the epoch is repeated; sources that are gone are left out\n";
  if (now.run.epochs > 0) text += fmt::format("  run.epochs counts on from {:.4g}\n", p.earlier.epochs);
  return text + sources;
}

}  // namespace

std::string notes_on_changes(const Run& run, const job::Restored& restored, DataCourse course) {
  if (run.is_complete()) return "";
  const config::DeckChanges& changes = restored.changes;
  const bool rate = changes.has("schedule.*") || changes.has("optimizer.lr"),
             data = course == DataCourse::changed,
             length = restored.progress.run_steps > 0 && restored.progress.run_steps != run.facts.steps;
  std::string text = changes.keys.empty() ? "" : "changed by checkpoint.override:\n";
  for (const config::KeyChange& change : changes.keys)
    text += fmt::format("  {}: {} -> {}\n", change.key, change.before, change.now);
  if (!rate && !data)
    return text + note_on_length(run.deck, restored.progress, run.facts.steps) + note_on_earlier(run);
  if (rate || length) text += note_on_schedule(run, restored);
  if (length)
    text += fmt::format("length: the run ends at step {}, {} before\n", run.facts.steps,
                        restored.progress.run_steps);
  return data ? text + note_on_data(run, restored) : text;
}

std::string note_on_states(const std::set<std::string>& anew) {
  if (anew.empty()) return "";
  return fmt::format(
      "note: the checkpoint does not hold {} for this number of copies of the weights (mesh.replicate): that "
      "state begins anew, as zeros\n",
      fmt::join(anew, ", "));
}

}  // namespace ztrain::train
