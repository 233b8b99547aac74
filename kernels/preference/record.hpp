#pragma once
// Losses on pairs of answers (Rafailov et al., "Direct preference optimization", 2023), and on answers with
// labels (Ethayarajh et al., "KTO", 2024). A micro-batch of T tokens has S slots for sequences; a pair's
// chosen answer is in an even slot, its rejected one in the next. Of four slots, the first two have a
// desirable answer and one to the same prompt that belongs to another; the last two have an undesirable
// answer, likewise.

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// nll fp64 [T] (times the tokens' weights), token_weights [T], sequences int32 [T] (each token's slot, never
/// falling), reference fp64 [T] -> sums fp64 [S, 3]: log-probability, sum of weights, sum of `reference`.
struct SequenceSums : NoConstants {
  static constexpr std::string_view op = "sequence_sums";
  enum In : std::size_t { nll, token_weights, sequences, reference };
  enum Out : std::size_t { sums };
  static constexpr Count reads = 4, writes = 1;
};
/// dsums [S, 3], sequences [T] -> dnll [T]: minus the gradient of the sequence's log-probability.
struct SequenceSumsGrad : NoConstants {
  static constexpr std::string_view op = "sequence_sums_grad";
  enum In : std::size_t { dsums, sequences };
  enum Out : std::size_t { dnll };
  static constexpr Count reads = 2, writes = 1;
};

/// Constants of the losses, named as the deck's [preference].
struct PreferenceConstants {
  std::string loss_type = "sigmoid";
  double beta = 0.1, label_smoothing = 0, simpo_gamma = 0, desirable_weight = 1, undesirable_weight = 1,
         center_rewards_coefficient = 0;
  static constexpr auto fields() {
    return std::tuple{
        Given{"loss_type", &PreferenceConstants::loss_type},
        Given{"beta", &PreferenceConstants::beta},
        Unusual{"label_smoothing", &PreferenceConstants::label_smoothing},
        Unusual{"simpo_gamma", &PreferenceConstants::simpo_gamma},
        Unusual{"desirable_weight", &PreferenceConstants::desirable_weight},
        Unusual{"undesirable_weight", &PreferenceConstants::undesirable_weight},
        Unusual{"center_rewards_coefficient", &PreferenceConstants::center_rewards_coefficient}};
  }
};
/// sums [S, 3] -> kl fp64 [2]: over the answers beside those with labels the sum of the log-ratios to the
/// reference, and their number. No gradient flows through it.
struct KlSums : NoConstants {
  static constexpr std::string_view op = "kl_sums";
  enum In : std::size_t { sums };
  enum Out : std::size_t { kl };
  static constexpr Count reads = 1, writes = 1;
};
/// sums [S, 3], (kl [2] of the micro-batches that ranks have at once) -> losses fp64 [2]: sum over pairs,
/// number of pairs; report fp64 (PreferenceSums); logps fp64 [S]: the sequences' log-probabilities;
/// workspace. Slots without trained tokens are in no pair.
struct PreferenceLoss : PreferenceConstants {
  static constexpr std::string_view op = "preference_loss";
  enum In : std::size_t { sums, kl };
  enum Out : std::size_t { losses, report, logps, workspace };
  static constexpr Count reads{1, 2}, writes = 4;
};
/// sums, (kl) -> losses, report, logps, dsums [S, 3], workspace. The loss scale is not in dsums: the head has
/// it.
struct PreferenceLossGrad : PreferenceConstants {
  static constexpr std::string_view op = "preference_loss_grad";
  enum In : std::size_t { sums, kl };
  enum Out : std::size_t { losses, report, logps, dsums, workspace };
  static constexpr Count reads{1, 2}, writes = 5;
};

}  // namespace ztrain
namespace ztrain::program {

/// reports fp64 [M, n] of a rank that has the head -> their sum over M micro-batches.
struct PreferenceReport {
  static constexpr std::string_view op = "preference_report";
  enum Out : std::size_t { report };
  static constexpr Count reads{0, 1}, writes = 1;
  bool counts = false;     ///< this rank reports for all ranks that computed the same
  bool of_tokens = false;  ///< ranks that share a micro-batch's tokens have sums of their own tokens
  static constexpr auto fields() {
    return std::tuple{Given{"counts", &PreferenceReport::counts},
                      Unusual{"of_tokens", &PreferenceReport::of_tokens}};
  }
};

}  // namespace ztrain::program
