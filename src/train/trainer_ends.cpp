// What ends a run before its last step: time, signals, a rank that hangs, and a step whose gradients are not
// finite.

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "checkpoint/rank_group.hpp"
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

}  // namespace ztrain::train
