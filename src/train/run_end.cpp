#include "train/run_end.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"
#include "train/export_model.hpp"
#include "train/output_folder.hpp"

namespace ztrain::train {
namespace {

/// Returns the first op of what the ranks have found in the same step; "" if none has found anything.
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

std::unique_ptr<telemetry::Watchdog::Exchange> RunEnd::exchange_places(telemetry::Watchdog& watchdog) const {
  if (run_.session.size() == 1 || run_.deck.watchdog.timeout <= 0) return nullptr;
  const std::string folder = (std::filesystem::path(run_.deck.run.output) / places_name).string();
  const auto place = [this] {
    telemetry::Place here = run_.worker.place();
    here.host = run_.session.host();
    return here;
  };
  std::unique_ptr<telemetry::Watchdog::Exchange> exchange;
  try {
    // What an earlier run has left would pass for an answer.
    run_.session.agree("preparing the folder of the ranks' places", [&] {
      if (run_.session.rank() != 0) return;
      std::filesystem::create_directory(folder);
      telemetry::remove_places(folder);
    });
    run_.session.agree("writing the ranks' places", [&] {
      exchange = std::make_unique<telemetry::Watchdog::Exchange>(
          watchdog, telemetry::PlaceFolder{folder, run_.session.size()}, place);
    });
  } catch (const runtime::AgreedError& e) {
    exchange.reset();
    run_.print(
        "warning: ranks that hang could not tell each other where they are, and each would tell "
        "of itself: {}\n",
        e.what());
  }
  return exchange;
}

bool RunEnd::stops_at_non_finite() {
  if (run_.deck.watchdog.non_finite != "stop" || run_.worker.scalars().found_inf == 0) return false;
  const telemetry::Phase phase(run_.console, "looking for what is not finite in step",
                               run_.progress.step + 1);
  run_.set_scalars();
  const std::string first = run_.session.from_rank_0(first_of(run_.worker.inspect_step(), run_.session));
  // The optimizer has then stepped weights for a step that is not counted: nothing may be saved of them.
  if (run_.worker.scalars().found_inf == 0)
    throw runtime::AgreedError(
        fmt::format("step {}: its gradients were not finite, and computed again they are: what computes the "
                    "same twice has not, so a device, its memory or a link may be at fault; the same command "
                    "goes on from the newest checkpoint",
                    run_.progress.step + 1));
  run_.failure = fmt::format(
      "step {}: its gradients are not finite (watchdog.non_finite = \"stop\"). Computed again: {}",
      run_.progress.step + 1,
      !first.empty() ? "first " + first
      : run_.worker.device().asynchronous()
          ? "on this device the results of ops are not looked at"
          : "what each op computes is finite, so the norm of all is too large");
  return true;
}

void RunEnd::look_for_requests() {
  constexpr double between = 1;  // seconds; servers of a shared file system may answer each look
  if (run_.session.rank() != 0 || now() - looked_ < between) return;
  looked_ = now();
  for (const FileRequest& request : take_requests(run_.deck.run.output)) {
    const bool ends = request.signal == SIGUSR1;
    if (!request.why_kept.empty()) {
      if (kept_.insert(request.path).second)
        run_.print("warning: {} of {} asks for nothing, because the run cannot remove it: {}\n", request.path,
                   request.owner, request.why_kept);
      continue;
    }
    // slurm/launch.sh looks for this sentence on stderr, to which the notice of a signal goes too.
    run_.console.print_error(fmt::format("{} of {} is taken: the run saves and {}, as on {}\n", request.path,
                                         request.owner, ends ? "ends" : "goes on",
                                         ends ? "SIGUSR1" : "SIGUSR2"));
    ::kill(::getpid(), request.signal);
  }
}

/// Promises no checkpoint if mpirun, which also sends SIGTERM to take a failed job down, may kill the ranks.
void RunEnd::notice(const runtime::Signals::Kind& signal) const {
  if (signal.number == SIGUSR2) return;
  const bool saves = run_.deck.checkpoint.interval >= 0;
  const auto end = signal.number == SIGTERM ? runtime::mpirun_end() : std::nullopt;
  const std::string how =
      end && saves
          ? fmt::format(
                ". If {0} was told to end, it kills the ranks in {1} s: a checkpoint is written only if step "
                "and save end before that, else the steps since the newest checkpoint are lost. `pkill -USR1 "
                "{0}` ends a run with a checkpoint",
                end->program, end->wait)
          : fmt::format("{}{}", saves ? ", with a checkpoint" : "",
                        signal.number == SIGINT ? "; a second SIGINT ends it at once" : "");
  run_.console.print_error(fmt::format("{}: the run is to end after this step{}\n", signal.name, how));
}

runtime::Requests RunEnd::hear(bool writes) const {
  runtime::Report report = limits_.report(run_.session, !run_.failure.empty());
  report.writes = writes;
  const telemetry::Phase phase(run_.console, "hearing from all ranks behind step", run_.progress.step);
  return run_.session.requests(report);
}

void RunEnd::note_stop(const runtime::Requests& asked) {
  using runtime::Stop;
  if (asked.stop == Stop::failure) return;
  output_.print_last_line();
  const std::string why = asked.stop == Stop::signal ? std::string(asked.signal) : limits_.why(asked.stop);
  if (asked.stop != Stop::time_is_up) ended_by_ = why;
  run_.print("{}: the run stops after step {} of {}\n", why, run_.progress.step, run_.facts.steps);
}

Ending RunEnd::end() {
  output_.print_last_line();
  if (const std::string failure = run_.agreed(run_.failure); !failure.empty()) end_failed(failure);
  saves_.save_at_end();
  snapshots_.remove();
  output_.report_peak();
  report_best();
  require_end();
  const std::string& folder = run_.deck.checkpoint.export_to;
  if (run_.is_complete()) {
    if (!folder.empty()) export_model_at_end();
    return Ending::complete;
  }
  if (!folder.empty())
    run_.print("nothing is exported to '{}': the run is not at its end; the same command goes on\n", folder);
  return ending_of_stop();
}

/// Returns how a run ends that stopped before its last step. Throws AgreedError if it is not saved.
Ending RunEnd::ending_of_stop() const {
  if (ended_by_.empty()) return Ending::time_is_up;
  if (run_.deck.checkpoint.interval >= 0) return Ending::asked_to;
  throw runtime::AgreedError(
      fmt::format("{} ended the run after step {}, which is not saved: checkpoint.interval = -1", ended_by_,
                  run_.progress.step));
}

/// Saves the last good step. Then every rank throws what has failed, and how the save ended.
void RunEnd::end_failed(const std::string& failure) {
  std::string end = fmt::format("the run ends after step {}, which has no checkpoint", run_.progress.step);
  try {
    saves_.save_at_end();
    snapshots_.remove();
    if (saves_.newest().step == run_.progress.step)
      end = fmt::format(
          "the run ends after step {}, which is saved: once the cause is mended, the same command goes on "
          "from there",
          run_.progress.step);
  } catch (const runtime::AgreedError& e) {
    end += fmt::format(": {}", e.what());
  }
  throw runtime::AgreedError(fmt::format("{}\n{}", failure, end));
}

/// Throws AgreedError if training has diverged, so that a queue does not start the run again.
void RunEnd::require_end() const {
  if (run_.skipped_steps.weights_are_dead()) set_dead_aside();
  if (run_.skipped_steps.has_given_up()) throw runtime::AgreedError(run_.skipped_steps.verdict());
  std::string what;
  if (run_.has_diverged())
    what = fmt::format("the last {} steps of the run had gradients that are not finite, and were skipped",
                       run_.skipped_steps.skipped_in_a_row());
  else if (run_.is_complete() && run_.progress.step > 0 && run_.progress.optimizer_steps == 0)
    what =
        "every step of the run had gradients that are not finite, and was skipped (in fp16 a smaller "
        "loss_scaling.initial_scale_power may help)";
  else if (run_.is_complete() && run_.progress.evaluation_failed)
    what = "the validation loss at the end of the run is not finite";
  if (what.empty()) return;
  const std::string folder = config::checkpoint_folder(run_.deck);
  const bool saved =
      !run_.session.from_rank_0(run_.session.rank() == 0 && checkpoint::newest(folder) ? "saved" : "")
           .empty();
  throw runtime::AgreedError(fmt::format(
      "{}: training has diverged. Start anew with a lower optimizer.lr{}", what,
      saved
          ? fmt::format(
                ", or with that and another run.output from an older checkpoint (model.from = \"{}/step_N\")",
                folder)
          : ""));
}

/// Moves checkpoints aside from which no step can be taken. The same command then goes on from an older one.
void RunEnd::set_dead_aside() const {
  if (run_.deck.checkpoint.interval < 0 || run_.progress.proven_step < 0) return;
  const std::string folder = config::checkpoint_folder(run_.deck);
  run_.session.agree("moving checkpoints", [&] {
    if (run_.session.rank() != 0) return;
    const std::string aside = move_aside(folder, run_.progress.proven_step, ".diverged");
    if (!aside.empty())
      run_.print("checkpoints beyond step {} are now in {}: no step can be taken from them\n",
                 run_.progress.proven_step, aside);
  });
}

/// Prints at rank 0 which step has the lowest validation loss.
void RunEnd::report_best() const {
  const job::Progress& p = run_.progress;
  if (p.best_step < 0) return;
  const auto saved = fmt::format("{}/step_{}", config::checkpoint_folder(run_.deck), p.best_step);
  std::error_code unknown;
  run_.print("the lowest validation loss is {:.4f}{}, of step {}{}\n", p.best_validation_loss,
             run_.deck.preference.is_on()
                 ? ""
                 : fmt::format(" (perplexity {:.4g})", std::exp(p.best_validation_loss)),
             p.best_step,
             run_.session.rank() == 0 && std::filesystem::exists(saved, unknown)
                 ? ": checkpoint " + saved
                 : ", which has no checkpoint (checkpoint.keep_best keeps one)");
}

void RunEnd::export_model_at_end() const {
  const std::string& folder = run_.deck.checkpoint.export_to;
  std::error_code error;  // of rank 0, whose folder it is: export_model says what is wrong with it
  const bool here = run_.session.rank() == 0 && std::filesystem::exists(folder, error);
  const bool exists = !run_.session.from_rank_0(here ? "exists" : "").empty();
  if (run_.was_complete && exists) return run_.print("checkpoint.export: '{}' is there already\n", folder);
  const auto refuse = [&](const std::string& why) {
    throw runtime::AgreedError(fmt::format("checkpoint.export: {}", why));
  };
  if (saves_.newest().step != run_.progress.step)
    refuse(fmt::format("step {} has no checkpoint, so nothing is exported", run_.progress.step));
  const bool best = run_.deck.checkpoint.export_from == "best";
  const std::string from = best ? saves_.best() : saves_.path();
  if (from.empty()) refuse("no checkpoint has a validation loss, so there is no best one to export");
  if (best) run_.print("checkpoint.export_from = \"best\": {} is exported\n", from);
  try {
    export_model(run_.session, run_.console, export_request(run_.deck, from));
  } catch (const runtime::AgreedError& e) {
    refuse(fmt::format(
        "{}\nthe run is complete and its checkpoint stays: `ztrain export {} --to FOLDER` writes the model",
        e.what(), from));
  }
}

}  // namespace ztrain::train
