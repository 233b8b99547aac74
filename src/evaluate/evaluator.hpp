#pragma once
// A model on the ranks of a session, whose losses are asked for: its deck is made of what the model itself
// says, and of a few options.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "evaluate/likelihoods.hpp"
#include "job/evaluation.hpp"
#include "job/model_source.hpp"
#include "job/worker.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::evaluate {

/// Settings that a user may give; "" and 0: the model's own.
struct Settings {
  std::string dtype;                   ///< dtype to compute in
  std::string packing;                 ///< data.packing
  std::int64_t sequence = 0;           ///< tokens of a row
  std::int64_t batch = 1;              ///< rows that a rank evaluates at once
  std::vector<std::string> overrides;  ///< "--section.key=value" of how the work is divided and data are read
};

/// Collective. Returns the tokens of a row if the user gives none: data.sequence of a checkpoint's run, else
/// what the model was made for, but at most 4,096.
std::int64_t usual_sequence(const runtime::Session& session, const job::ModelSource& source);

/// Returns a deck with the source's model, adapters and numerics, defaults for all else, and the settings.
/// The mesh is resolved for the session's ranks. Throws Error for keys of sections without an effect here.
config::Deck deck_for(const job::ModelSource& source, const Settings& settings,
                      const runtime::Session& session);

class Evaluator {
 public:
  /// Collective. Compiles, proves, allocates and reads the weights. Throws AgreedError if the model does not
  /// fit, and if its weights cannot be read. likelihoods: as model::Request.
  Evaluator(const runtime::Session& session, telemetry::Console& console, const job::ModelSource& source,
            const config::Deck& deck, std::int64_t likelihoods = 0);

  /// Collective. Returns the losses of all rows of each set. Throws AgreedError if rows cannot be read on a
  /// rank, or if a loss is not finite.
  job::Losses losses(const std::vector<data::RowSet>& sets);
  /// Collective. The same, and writes the likeliest words of all targets. For an Evaluator of likelihoods.
  job::Losses losses(const std::vector<data::RowSet>& sets, LikelihoodWriter& writer);
  /// Collective. Returns the loss of each row, for a deck whose batch.micro is 1. Throws likewise.
  std::vector<double> losses_of_rows(const data::RowSet& set);

  const std::vector<engine::Note>& notes() const { return worker_.notes(); }
  /// Returns text such as "memory per rank: 1.50 GiB kept, 0.20 GiB while it computes".
  std::string memory_line() const;

 private:
  job::Losses losses(const std::vector<data::RowSet>& sets, const job::BatchHearer& hearer);
  void require_sound(const std::string& failure, bool finite);

  const runtime::Session& session_;
  telemetry::Console& console_;
  config::Deck deck_;
  job::Worker worker_;
};

}  // namespace ztrain::evaluate
