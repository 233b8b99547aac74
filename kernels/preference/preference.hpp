#pragma once
// Computes the losses of pairs of answers from the log-probabilities of their tokens, and the gradients of
// these losses. All numbers are fp64: a loss depends on differences of large sums.

#include <cstdint>

#include "base/preference_loss.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Tokens of a micro-batch, [T] each. `sequences` never falls.
struct PreferenceTokens {
  Vector<const double> nll;  ///< times the weight
  Vector<const float> weights;
  Vector<const std::int32_t> sequences;
  Vector<const double> reference;
};

/// Writes sums [S, 3], each added in the order of tokens. Slots without tokens get zeros.
void sequence_sums(Exec& exec, const PreferenceTokens& tokens, Matrix<double> sums);

/// Computes dnll [T] of dsums [S, 3].
void sequence_sums_backward(Exec& exec, Matrix<const double> dsums, Vector<const std::int32_t> sequences,
                            Vector<double> dnll);

/// The constants of a loss.
struct PairSettings {
  PairLoss loss = PairLoss::sigmoid;
  double beta = 0.1, smoothing = 0, gamma = 0;
  double desirable = 1, undesirable = 1;  ///< weights of answers with labels
  double center = 0;                      ///< coefficient of the squared sum of a pair's rewards
};

/// Results of a loss: losses [2], report [preference_sums], logps [S], dsums [S, 3], which may be null.
/// workspace: preference_workspace_bytes(S).
struct PairResults {
  Vector<double> losses, report;
  double *logps, *dsums;
  double* workspace;
};

/// kl: [2] as KlSums has them; null: none.
void preference_loss(Exec& exec, const PairSettings& settings, Matrix<const double> sums, const double* kl,
                     const PairResults& results);

/// Computes KlSums.
void kl_sums(Exec& exec, Matrix<const double> sums, Vector<double> kl);

/// report = the sum of the rows of `reports`; zeros without rows.
void preference_report(Exec& exec, Matrix<const double> reports, Vector<double> report);

}  // namespace ztrain::kernels
