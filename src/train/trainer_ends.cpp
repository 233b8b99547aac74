// How a run ends: by time, a signal, a rank that hangs, a step whose gradients are not finite, or its last
// step; and what it says then.

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"
#include "train/export_model.hpp"
#include "train/output_folder.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {
namespace {

/// Of what the ranks have found in the same step, the first; "" where none has found anything.
std::string first_of(const std::optional<engine::FoundOp>& own, const runtime::Session& session) {
  const auto world = checkpoint::Group::world();
  const auto issues = world.all_gather(own ? own->issue : -1);
  const auto texts = world.gather_text(
      own ? fmt::format("rank {} ({}), {}", session.rank(), session.host(), own->text) : "");
  std::size_t first = issues.size();
  for (std::size_t rank = 0; rank < issues.size(); ++rank)
    if (issues[rank] >= 0 && (first == issues.size() || issues[rank] < issues[first])) first = rank;
  return first < texts.size() ? texts[first] : "";
}

}  // namespace

/// Collective. For as long as it lives the watchdog asks all ranks where they are before it ends the job, by
/// files in run.output. Nothing for one rank, without a timeout, and, with a warning, where some rank cannot
/// write there: then each tells of itself alone.
std::unique_ptr<telemetry::Watchdog::Exchange> Trainer::exchange_places() const {
  if (session_.size() == 1 || deck_.watchdog.timeout <= 0) return nullptr;
  const std::string folder = (std::filesystem::path(deck_.run.output) / places_name).string();
  const auto place = [this] {
    telemetry::Place here = worker_.place();
    here.host = session_.host();
    return here;
  };
  std::unique_ptr<telemetry::Watchdog::Exchange> exchange;
  try {
    // What an earlier run has left would pass for an answer.
    session_.agree("preparing the folder of the ranks' places", [&] {
      if (session_.rank() != 0) return;
      std::filesystem::create_directory(folder);
      telemetry::remove_places(folder);
    });
    session_.agree("writing the ranks' places", [&] {
      exchange = std::make_unique<telemetry::Watchdog::Exchange>(
          watchdog_, telemetry::PlaceFolder{folder, session_.size()}, place);
    });
  } catch (const runtime::AgreedError& e) {
    exchange.reset();
    console_.print(
        fmt::format("warning: ranks that hang could not tell each other where they are, and each would tell "
                    "of itself: {}\n",
                    e.what()));
  }
  return exchange;
}

/// The optimizer has left weights and states as they were, so the run ends with the state before the step,
/// and the step is still to come.
bool Trainer::stops_at_non_finite() {
  if (deck_.watchdog.non_finite != "stop" || worker_.scalars().found_inf == 0) return false;
  const telemetry::Phase phase(console_, "looking for what is not finite in step", progress_.step + 1);
  set_scalars();
  const std::string first = session_.from_rank_0(first_of(worker_.inspect_step(), session_));
  // The optimizer has then stepped weights for a step that is not counted: nothing may be saved of them.
  if (worker_.scalars().found_inf == 0)
    throw runtime::AgreedError(
        fmt::format("step {}: its gradients were not finite, and computed again they are: what computes the "
                    "same twice has not, so a device, its memory or a link may be at fault; the same command "
                    "goes on from the newest checkpoint",
                    progress_.step + 1));
  failure_ = fmt::format(
      "step {}: its gradients are not finite (watchdog.non_finite = \"stop\"). Computed again: {}",
      progress_.step + 1,
      !first.empty()                    ? "first " + first
      : worker_.device().asynchronous() ? "on this device the results of ops are not looked at"
                                        : "what each op computes is finite, so the norm of all is too large");
  return true;
}

/// After the last step there is nothing to stop.
bool Trainer::stops_early() {
  using runtime::Stop;
  if (is_complete()) return false;
  runtime::Report report = limits_.report(session_, !failure_.empty());
  report.writes = (under_way_ && under_way_->save.works()) || (snapshot_ && snapshot_->works());
  const runtime::Requests asked = [&] {
    const telemetry::Phase phase(console_, "hearing from all ranks behind step", progress_.step);
    return session_.requests(report);
  }();
  if (asked.stop == Stop::failure) return true;
  if (asked.stop == Stop::none) {
    if (under_way_ && !asked.writes) advance_save();
    if (snapshot_ && !asked.writes) advance_snapshot();
    if (asked.save) save_as_asked();
    return false;
  }
  print_last_line();
  const std::string why = asked.stop == Stop::signal ? std::string(asked.signal) : limits_.why(asked.stop);
  if (asked.stop != Stop::time_is_up) ended_by_ = why;
  console_.print(fmt::format("{}: the run stops after step {} of {}\n", why, progress_.step, facts_.steps));
  return true;
}

/// Ranks that a signal reaches alone tell the others behind the step; rank 0 says so at once. A launcher that
/// takes a failed job down sends SIGTERM too: nothing is promised.
void Trainer::notice(const runtime::Signals::Kind& signal) {
  if (signal.number == SIGUSR2) return;
  const bool of_mpirun = signal.number == SIGTERM && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr &&
                         std::getenv("SLURM_STEP_ID") == nullptr;
  console_.print_error(fmt::format(
      "{}: the run is to end after this step{}{}{}\n", signal.name,
      deck_.checkpoint.interval < 0 ? "" : ", with a checkpoint",
      signal.number == SIGINT ? "; a second SIGINT ends it at once" : "",
      of_mpirun ? "; if mpirun was told to end, it kills the ranks in a second: tell it by SIGUSR1" : ""));
}

/// Of a run that stopped before its last step.
Ending Trainer::ending_of_stop() const {
  if (ended_by_.empty()) return Ending::time_is_up;
  if (deck_.checkpoint.interval >= 0) return Ending::asked_to;
  throw runtime::AgreedError(
      fmt::format("{} ended the run after step {}, which is not saved: checkpoint.interval = -1", ended_by_,
                  progress_.step));
}

bool Trainer::is_complete() const {
  return progress_.step >= facts_.steps;
}

bool Trainer::has_diverged() const {
  return is_complete() ? skipped_steps_.diverged_at_end() : skipped_steps_.diverging();
}

/// The last good step is saved; then every rank throws what has failed, and how that ended.
void Trainer::end_failed(const std::string& failure) {
  std::string end = fmt::format("the run ends after step {}, which has no checkpoint", progress_.step);
  try {
    save_at_end();
    if (snapshots_) snapshots_->remove();
    if (saved_state_.step == progress_.step)
      end = fmt::format(
          "the run ends after step {}, which is saved: once the cause is mended, the same command goes on "
          "from there",
          progress_.step);
  } catch (const runtime::AgreedError& e) {
    end += fmt::format(": {}", e.what());
  }
  throw runtime::AgreedError(fmt::format("{}\n{}", failure, end));
}

/// A run that ends itself after training has diverged is not to be started again by a queue.
void Trainer::require_end() {
  if (skipped_steps_.weights_are_dead()) set_dead_aside();
  if (skipped_steps_.has_given_up()) throw runtime::AgreedError(skipped_steps_.verdict());
  std::string what;
  if (has_diverged())
    what = fmt::format("the last {} steps of the run had gradients that are not finite, and were skipped",
                       skipped_steps_.skipped_in_a_row());
  else if (is_complete() && progress_.step > 0 && progress_.optimizer_steps == 0)
    what =
        "every step of the run had gradients that are not finite, and was skipped (in fp16 a smaller "
        "loss_scaling.initial_scale_power may help)";
  else if (is_complete() && progress_.evaluation_failed)
    what = "the validation loss at the end of the run is not finite";
  if (what.empty()) return;
  const std::string folder = config::checkpoint_folder(deck_);
  const bool saved =
      !session_.from_rank_0(session_.rank() == 0 && checkpoint::newest(folder) ? "saved" : "").empty();
  throw runtime::AgreedError(fmt::format(
      "{}: training has diverged. Start anew with a lower optimizer.lr{}", what,
      saved
          ? fmt::format(
                ", or with that and another run.output from an older checkpoint (model.from = \"{}/step_N\")",
                folder)
          : ""));
}

/// The same command then goes on from a checkpoint from which a step was taken.
void Trainer::set_dead_aside() {
  if (deck_.checkpoint.interval < 0 || progress_.proven_step < 0) return;
  const std::string folder = config::checkpoint_folder(deck_);
  session_.agree("moving checkpoints", [&] {
    if (session_.rank() != 0) return;
    const std::string aside = move_aside(folder, progress_.proven_step, ".diverged");
    if (!aside.empty())
      console_.print(fmt::format("checkpoints beyond step {} are now in {}: no step can be taken from them\n",
                                 progress_.proven_step, aside));
  });
}

void Trainer::report_peak() {
  worker_.held().look();
  const std::int64_t planned = worker_.planned_bytes() + outside_bytes_;
  console_.print(fmt::format("peak memory {} of {} planned (arenas and what is outside the plan)\n{}",
                             format_bytes(worker_.held().peak()), format_bytes(planned),
                             worker_.held().peak_text(worker_.memory())));
}

void Trainer::export_at_end() {
  const std::string& folder = deck_.checkpoint.export_to;
  std::error_code error;  // of rank 0, whose folder it is: export_model says what is wrong with it
  const bool here = session_.rank() == 0 && std::filesystem::exists(folder, error);
  const bool exists = !session_.from_rank_0(here ? "exists" : "").empty();
  if (steps_at_start_ >= facts_.steps && exists)
    return console_.print(fmt::format("checkpoint.export: '{}' is there already\n", folder));
  const auto refuse = [&](const std::string& why) {
    throw runtime::AgreedError(fmt::format("checkpoint.export: {}", why));
  };
  if (saved_state_.step != progress_.step)
    refuse(fmt::format("step {} has no checkpoint, so nothing is exported", progress_.step));
  try {
    export_model(session_, console_, export_request(deck_, saved_));
  } catch (const runtime::AgreedError& e) {
    refuse(fmt::format(
        "{}\nthe run is complete and its checkpoint stays: `ztrain export {} --to FOLDER` writes the model",
        e.what(), saved_));
  }
}

}  // namespace ztrain::train
