#pragma once
// The losses on preferences: their names, which are those of TRL, and what each of them needs. Kernels
// compute them, and the deck's legal values come from the same table.

#include <cstdint>
#include <string_view>

#include "base/error.hpp"

namespace ztrain {

enum class PairLoss : std::uint8_t {
  sigmoid,
  sigmoid_norm,
  hinge,
  ipo,
  robust,
  exo_pair,
  nca_pair,
  bco_pair,
  sppo_hard,
  apo_zero,
  apo_down,
  discopop,
  simpo,
  orpo,
  reward,
  kto,
  apo_zero_unpaired
};

struct PairLossRow {
  std::string_view name;
  PairLoss loss;
  bool reference;  ///< it compares with the log-probabilities of a reference model
  bool smoothed;   ///< it reads preference.label_smoothing
  std::string_view doc;
  bool labelled = false;  ///< of answers that are each desirable or not; else of pairs
  /// Kind of data that the loss needs: the attribute `preference` of token files.
  std::string_view data() const { return labelled ? "labels" : "pairs"; }
};

inline constexpr PairLossRow pair_losses[] = {
    {"sigmoid", PairLoss::sigmoid, true, true,
     "DPO (Rafailov et al., 2023); with label_smoothing conservative DPO (Mitchell, 2023)"},
    {"sigmoid_norm", PairLoss::sigmoid_norm, true, true, "DPO of log-probabilities per token"},
    {"hinge", PairLoss::hinge, true, false, "a hinge loss of the margin (SLiC, Zhao et al., 2023)"},
    {"ipo", PairLoss::ipo, true, false, "IPO (Azar et al., 2023) of log-probabilities per token"},
    {"robust", PairLoss::robust, true, true, "robust DPO (Chowdhury et al., 2024)"},
    {"exo_pair", PairLoss::exo_pair, true, true, "EXO (Ji et al., 2024)"},
    {"nca_pair", PairLoss::nca_pair, true, false, "NCA (Chen et al., 2024)"},
    {"bco_pair", PairLoss::bco_pair, true, false, "BCO (Jung et al., 2024) without its shift"},
    {"sppo_hard", PairLoss::sppo_hard, true, false, "SPPO (Wu et al., 2024) with certain preferences"},
    {"apo_zero", PairLoss::apo_zero, true, false, "APO-zero (D'Oosterlinck et al., 2024)"},
    {"apo_down", PairLoss::apo_down, true, false, "APO-down (D'Oosterlinck et al., 2024)"},
    {"discopop", PairLoss::discopop, true, false, "DiscoPOP (Lu et al., 2024) with tau = 0.05"},
    {"simpo", PairLoss::simpo, false, true, "SimPO (Meng et al., 2024); its margin is simpo_gamma"},
    {"orpo", PairLoss::orpo, false, false,
     "ORPO (Hong et al., 2024): the chosen answer's loss per token, and beta times the odds ratio's"},
    {"reward", PairLoss::reward, false, false,
     "a reward model (Bradley-Terry; Ouyang et al., 2022), whose head gives an answer one number"},
    {"kto", PairLoss::kto, true, false, "KTO (Ethayarajh et al., 2024), of answers with labels", true},
    {"apo_zero_unpaired", PairLoss::apo_zero_unpaired, true, false, "APO-zero of answers with labels", true},
};

/// Returns the row of a name. Throws Error if there is none.
inline const PairLossRow& find_pair_loss(std::string_view name) {
  for (const PairLossRow& row : pair_losses)
    if (row.name == name) return row;
  fail("preference.loss_type = \"{}\" is no loss of pairs", name);
}

/// Returns whether a loss trains a reward model: its head gives one number, that of an answer's last token.
constexpr bool is_reward_loss(std::string_view name) {
  return name == "reward";
}

/// Slots for the sequences of a row of so many tokens. A pair has four tokens at least and two slots; so has
/// an answer with a label and the one beside it, which go into the first two or the last two of four.
constexpr std::int64_t sequence_slots(std::int64_t tokens) {
  return tokens / 4 * 4;
}

/// Columns of the sums of a sequence: its log-probability, the number of its trained tokens, and its
/// log-probability under the reference model.
inline constexpr std::int64_t sequence_sums_width = 3;

/// Sums that a step reports, over pairs or over answers with labels: the desirable ones are the chosen ones.
struct PreferenceSums {
  double pairs = 0;  ///< pairs or answers, over which the loss is a mean
  double chosen = 0, rejected = 0;
  double chosen_reward = 0, rejected_reward = 0;
  double accurate = 0;  ///< pairs whose chosen answer has the larger reward; NaN of answers with labels
  double chosen_logp = 0, rejected_logp = 0;  ///< rewards again, of a reward model
  double kl = 0;                              ///< pairs times the divergence that kto compares with

  double margin() const { return chosen_reward - rejected_reward; }
  /// Returns the means, with the counts. Means of nothing are NaN.
  PreferenceSums means() const {
    return {pairs,
            chosen,
            rejected,
            chosen_reward / chosen,
            rejected_reward / rejected,
            accurate / pairs,
            chosen_logp / chosen,
            rejected_logp / rejected,
            kl / pairs};
  }
  PreferenceSums& operator+=(const PreferenceSums& other) {
    double* const mine = &pairs;
    const double* const theirs = &other.pairs;
    for (std::size_t i = 0; i < sizeof(PreferenceSums) / sizeof(double); ++i) mine[i] += theirs[i];
    return *this;
  }
};
inline constexpr std::int64_t preference_sums = sizeof(PreferenceSums) / sizeof(double);

/// Number of results of a pair's loss: the loss, one pair, and PreferenceSums behind the first of them.
inline constexpr std::int64_t pair_terms = 1 + preference_sums;
constexpr std::int64_t preference_workspace_bytes(std::int64_t slots) {
  return slots / 2 * pair_terms * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace ztrain
