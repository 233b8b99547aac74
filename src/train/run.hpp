#pragma once
// Holds what every part of a run works on.

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/frozen_base.hpp"
#include "checkpoint/saving.hpp"
#include "data/sampler.hpp"
#include "job/skipped_steps.hpp"
#include "job/worker.hpp"
#include "train/report.hpp"

namespace ztrain::train {

/// A deck that was checked against the session's ranks, with model.vocab_size from the data.
struct Prepared {
  config::Deck deck;
  data::Datasets data;
};
Prepared prepare(const runtime::Session& session, telemetry::Console& console, config::Deck deck);

/// State that the parts of a run share: deck, data, the compiled job, and how far training is. Each part
/// keeps what it alone needs. The session and the console outlive a Run.
struct Run {
  /// Collective. Compiles the job and opens the device; the state of the job is not set yet.
  Run(const runtime::Session& ranks, telemetry::Console& lines, Prepared prepared, std::string program);

  bool is_complete() const { return progress.step >= facts.steps || is_out_of_patience(); }
  /// Returns whether so many evaluations did not improve the loss that the run ends before its last step.
  bool is_out_of_patience() const {
    return deck.evaluation.patience > 0 &&
           progress.evaluations_without_improvement >= deck.evaluation.patience;
  }
  /// Returns the passes over the data so far.
  double epochs() const {
    return config::epochs_of(progress.samples, sampler.rows_per_epoch(), progress.earlier);
  }
  bool has_diverged() const;
  /// Returns why training may not go on from these weights, or "" if nothing speaks against it.
  std::string doubt() const;
  /// Collective. Returns on every rank what has failed on any rank, as Session::agree words it, or "".
  std::string agreed(const std::string& failed) const;
  /// Returns everything that a checkpoint records beside its tensors.
  nlohmann::json metadata() const;
  /// Formats a message and prints it, at rank 0.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    console.print(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Gives the worker the learning rate and the other scalars of the next step.
  void set_scalars();
  /// Collective. Runs `work`, which is collective. Returns on every rank why no checkpoint could be written,
  /// or "". If any other error occurs, drops the save `under_way` so that nobody waits for it, and throws the
  /// error.
  template <class Save>
  std::string why_not_saved(std::optional<Save>& under_way, const std::function<void()>& work) const try {
    std::string why;
    session.agree("saving a checkpoint", [&] {
      try {
        work();
      } catch (const checkpoint::NotSaved& e) {
        why = e.what();
      }
    });
    return why;
  } catch (const runtime::AgreedError&) {
    under_way.reset();
    throw;
  }

  const runtime::Session& session;
  telemetry::Console& console;
  std::optional<telemetry::Phase> preparing;  ///< Lasts until the first step can be taken.
  config::Deck deck;
  std::string version;
  data::Datasets data;
  data::Sampler sampler;
  RunFacts facts;
  job::SkippedSteps skipped_steps;
  job::Worker worker;
  job::Progress progress;
  /// The weights that are not trained, if checkpoints do not hold them.
  std::optional<checkpoint::FrozenBase> frozen = {};
  bool was_complete = false;  ///< Whether there was no step to take.
  StepClock clock;            ///< Seconds of the step that is reported next.
  /// What failed on this rank outside the computation. The run then ends with its state saved.
  std::string failure;
};

}  // namespace ztrain::train
