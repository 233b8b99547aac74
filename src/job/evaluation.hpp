#pragma once
// The loss on validation sets, and on single rows.

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "data/datasets.hpp"
#include "data/rows/batch_part.hpp"
#include "job/worker.hpp"

namespace ztrain::job {

data::MicroBatch batch_of(const InputAddresses& addresses);

/// What the rank has of micro-batches of these tokens.
data::BatchPart part_of_batches(Worker& worker, std::int64_t tokens);

/// Returns how many tokens this rank has of micro-batches of these tokens, padding included.
std::int64_t own_tokens(Worker& worker, std::int64_t tokens);

/// Hears of each micro-batch that is evaluated. places: [own_tokens()], gets those of its targets
/// (data::MicroBatch).
struct BatchHearer {
  std::span<std::int64_t> places{};
  std::function<void()> hear{};
};

/// Nats a token, or a pair's loss. NaN where no token was predicted.
struct SetLoss {
  std::string name;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double tokens = 0;                      ///< predicted
  std::optional<PreferenceSums> pairs{};  ///< as Losses::pairs
};

/// Balance loss and z-loss of experts, times their coefficients, per token.
struct ExpertLosses {
  double balance = 0, z = 0;
};

struct Losses {
  double all = std::numeric_limits<double>::quiet_NaN();  ///< of all sets together, each token alike
  std::vector<SetLoss> sets;
  double tokens = 0;                       ///< predicted, in all sets
  std::optional<ExpertLosses> experts;     ///< nothing without experts
  std::optional<PreferenceSums> pairs;     ///< means over pairs; nothing unless the loss is on pairs
  std::int64_t rows = 0, rows_in_all = 0;  ///< evaluated, and in the sets
  std::string failure;  ///< why data could not be read, on this rank; the losses are then not those of all
  /// False: the weights make no loss of tokens that they are to predict.
  bool finite() const { return tokens == 0 || std::isfinite(all); }
};

/// Collective, also where a rank cannot read its data: the first deck.evaluation.batches micro-batches per
/// rank of each set, in the order of its rows. beat is called before each, with what it is: "chat, batch 3 of
/// 64".
Losses evaluate(Worker& worker, const config::Deck& deck, const std::vector<data::RowSet>& sets,
                const std::function<void(const std::string& batch)>& beat, const BatchHearer& hearer = {});

/// Losses of single rows.
struct RowLosses {
  std::vector<double> nats;  ///< sum over the row's tokens that are to be predicted, by row
  std::string failure;       ///< as Losses::failure
};

/// Collective, for a job whose batch.micro is 1. Evaluates all rows of a set, each by itself.
RowLosses losses_of_rows(Worker& worker, const data::RowSet& set,
                         const std::function<void(const std::string& batch)>& beat);

/// "validation loss 2.1000 nats a token (chat 2.0000, law 2.2000) over 64 of 500 sequences"; sets are named
/// where there are several, and numbers where not all sequences were evaluated.
std::string describe(const Losses& losses);

}  // namespace ztrain::job
