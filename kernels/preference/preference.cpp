#include "kernels/preference/preference.hpp"

#include <limits>

#include "base/error.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/preference/pair_losses.hpp"

namespace ztrain::kernels {
namespace {

/// The first token whose slot is not below `slot`.
ZTRAIN_FUNCTION std::int64_t first_of(const std::int32_t* sequences, std::int64_t tokens, std::int64_t slot) {
  std::int64_t begin = 0, end = tokens;
  while (begin < end) {
    const std::int64_t middle = (begin + end) / 2;
    if (sequences[middle] < slot)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// Writes the terms of a pair, and the gradients of its two slots.
struct Pair {
  PairSettings settings;
  const double *sums, *kl;
  double *terms, *logps, *dsums;

  ZTRAIN_FUNCTION void operator()(std::int64_t pair) const {
    const double* const at = sums + 2 * pair * sequence_sums_width;
    const Answer chosen{at[0], at[1], at[2]}, rejected{at[3], at[4], at[5]};
    const bool is_pair = chosen.tokens > 0 && rejected.tokens > 0;
    const bool labelled = settings.loss == PairLoss::kto || settings.loss == PairLoss::apo_zero_unpaired;
    double* const to = terms + pair * pair_terms;
    for (int i = 0; i < pair_terms; ++i) to[i] = 0;
    PairValue v{};
    if (is_pair && labelled)
      v = of_label(chosen, pair % 2 == 0, to);
    else if (is_pair)
      v = of_pair(chosen, rejected, to);
    logps[2 * pair] = chosen.logp;
    logps[2 * pair + 1] = rejected.logp;
    if (dsums == nullptr) return;
    double* const gradient = dsums + 2 * pair * sequence_sums_width;
    for (int i = 0; i < 2 * sequence_sums_width; ++i) gradient[i] = 0;
    gradient[0] = v.by_chosen;
    gradient[sequence_sums_width] = v.by_rejected;
  }

  /// Writes PreferenceSums behind the loss, in their order.
  ZTRAIN_FUNCTION PairValue of_pair(const Answer& chosen, const Answer& rejected, double* to) const {
    const PairValue v = pair_loss(settings, chosen, rejected);
    const double terms_of_pair[] = {v.loss,
                                    1,
                                    1,
                                    1,
                                    v.chosen_reward,
                                    v.rejected_reward,
                                    v.chosen_reward > v.rejected_reward ? 1.0 : 0.0,
                                    chosen.logp,
                                    rejected.logp};
    for (int i = 0; i < 9; ++i) to[i] = terms_of_pair[i];
    return v;
  }
  ZTRAIN_FUNCTION PairValue of_label(const Answer& answer, bool desirable, double* to) const {
    const double divergence = kl != nullptr && kl[1] > 0 && kl[0] > 0 ? kl[0] / kl[1] : 0;
    const PairValue v = label_loss(settings, answer, desirable, divergence);
    const int side = desirable ? 0 : 1;
    to[0] = v.loss;
    to[1] = to[2 + side] = 1;
    to[4 + side] = settings.beta * answer.ratio();
    to[6] = std::numeric_limits<double>::quiet_NaN();
    to[7 + side] = answer.logp;
    to[9] = divergence;
    return v;
  }
};

/// Adds up one of the terms of all pairs: the loss, then PreferenceSums.
struct AddTerms {
  const double* terms;
  std::int64_t pairs;
  double *losses, *report;

  void operator()(std::int64_t term) const { by(SoleThread(), term); }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t term) const {
    double part = 0;
    for (std::int64_t i = threads.rank(); i < pairs; i += threads.size())
      part += terms[i * pair_terms + term];
    part = threads.sum(part);
    if (threads.rank() > 0) return;
    if (term < 2) losses[term] = part;
    if (term > 0) report[term - 1] = part;
  }
};

}  // namespace

void sequence_sums(Exec& exec, const PreferenceTokens& t, Matrix<double> sums) {
  const std::int64_t tokens = t.nll.count;
  REQUIRE(t.weights.count == tokens && t.sequences.count == tokens && t.reference.count == tokens &&
              sums.cols == sequence_sums_width,
          "sequence sums: {} tokens have {} weights, {} slots and {} references; sums are [{}, {}]", tokens,
          t.weights.count, t.sequences.count, t.reference.count, sums.rows, sums.cols);
  for_rows(
      exec, sums.rows, KOKKOS_LAMBDA(const std::int64_t slot) {
        double logp = 0, weight = 0, reference = 0;
        for (std::int64_t i = first_of(t.sequences.data, tokens, slot);
             i < tokens && t.sequences.data[i] == slot; ++i) {
          logp -= t.nll.data[i];
          weight += t.weights.data[i];
          reference += t.reference.data[i];
        }
        double* const to = sums.data + slot * sequence_sums_width;
        to[0] = logp;
        to[1] = weight;
        to[2] = reference;
      });
}

void sequence_sums_backward(Exec& exec, Matrix<const double> dsums, Vector<const std::int32_t> sequences,
                            Vector<double> dnll) {
  REQUIRE(dsums.cols == sequence_sums_width && dnll.count == sequences.count,
          "sequence sums backward: dsums [{}, {}], {} tokens, {} gradients", dsums.rows, dsums.cols,
          sequences.count, dnll.count);
  for_rows(
      exec, dnll.count, KOKKOS_LAMBDA(const std::int64_t i) {
        dnll.data[i] = -dsums.data[sequences.data[i] * sequence_sums_width];
      });
}

void kl_sums(Exec& exec, Matrix<const double> sums, Vector<double> kl) {
  REQUIRE(sums.cols == sequence_sums_width && sums.rows % 2 == 0 && kl.count == 2,
          "kl sums: sums [{}, {}], {} results", sums.rows, sums.cols, kl.count);
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        double ratios = 0, count = 0;
        for (std::int64_t pair = 0; pair < sums.rows / 2; ++pair) {
          const double* const at = sums.data + 2 * pair * sequence_sums_width;
          if (at[1] == 0 || at[sequence_sums_width + 1] == 0) continue;
          ratios += at[sequence_sums_width] - at[sequence_sums_width + 2];
          count += 1;
        }
        kl.data[0] = ratios;
        kl.data[1] = count;
      });
}

void preference_loss(Exec& exec, const PairSettings& settings, Matrix<const double> sums, const double* kl,
                     const PairResults& results) {
  REQUIRE(sums.cols == sequence_sums_width && sums.rows % 2 == 0 && results.losses.count == 2 &&
              results.report.count == preference_sums,
          "preference loss: sums [{}, {}], {} losses, {} numbers to report", sums.rows, sums.cols,
          results.losses.count, results.report.count);
  const std::int64_t pairs = sums.rows / 2;
  for_rows(exec, pairs, Pair{settings, sums.data, kl, results.workspace, results.logps, results.dsums});
  for_shared_rows(exec, pair_terms, 256,
                  AddTerms{results.workspace, pairs, results.losses.data, results.report.data});
}

void preference_report(Exec& exec, Matrix<const double> reports, Vector<double> report) {
  for_rows(
      exec, report.count, KOKKOS_LAMBDA(const std::int64_t i) {
        double sum = 0;
        for (std::int64_t row = 0; row < reports.rows; ++row) sum += reports.data[row * report.count + i];
        report.data[i] = sum;
      });
}

}  // namespace ztrain::kernels
