// Losses of pairs of answers against their float64 reference, and their gradients against its differences.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/preference/preference.hpp"
#include "kernels/preference/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_preference_test {
namespace {

using namespace ztrain::test;

struct Result {
  Array<double> losses = Array<double>(2), report = Array<double>(preference_sums), logps, dsums;
};

Result run(const PairSettings& settings, const Array<double>& sums, bool with_gradient = true,
           const double* kl = nullptr) {
  const TestExec exec;
  Result r;
  const auto slots = static_cast<std::int64_t>(sums.size()) / sequence_sums_width;
  r.logps.assign(static_cast<std::size_t>(slots), 7);
  r.dsums.assign(sums.size(), 7);
  Array<double> workspace(static_cast<std::size_t>(slots / 2 * pair_terms));
  preference_loss(*exec, settings, {sums.data(), slots, sequence_sums_width}, kl,
                  {view(r.losses), view(r.report), r.logps.data(), with_gradient ? r.dsums.data() : nullptr,
                   workspace.data()});
  return r;
}

constexpr reference::PairNumbers pairs[] = {{-8, -9, -8.5, -7, 5, 9},
                                            {-30, -12, -28, -13, 11, 4},
                                            {-4, -4.25, -4, -4.25, 3, 3},
                                            {-2.5, -60, -9, -31, 2, 40}};

/// Slots of these pairs; the second pair of slots has no rejected answer, the last one is empty.
Array<double> sums_of_pairs() {
  Array<double> sums;
  const auto add = [&](std::initializer_list<double> numbers) {
    for (const double number : numbers) sums.push_back(number);
  };
  for (const reference::PairNumbers& p : pairs) {
    if (&p == &pairs[1]) add({-3, 2, -1, 0, 0, 0});
    add({p.chosen, p.chosen_tokens, p.reference_chosen});
    add({p.rejected, p.rejected_tokens, p.reference_rejected});
  }
  add({0, 0, 0, 0, 0, 0});
  return sums;
}

/// The derivative of the reference by one of its members, by differences of fourth order.
double slope(const PairLossRow& row, const reference::PairNumbers& at, const reference::PairConstants& c,
             double reference::PairNumbers::*member) {
  const double h = 1e-3;
  const auto moved = [&](double by) {
    reference::PairNumbers p = at;
    p.*member += by;
    return reference::pair_loss(row.name, p, c);
  };
  return (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
}

TEST(PairLosses, AgreeWithTheReference) {
  for (const PairLossRow& row : pair_losses) {
    if (row.labelled) continue;
    SCOPED_TRACE(row.name);
    const reference::PairConstants c{0.3, row.smoothed ? 0.1 : 0.0, 0.4, 0.02};
    const PairSettings settings{row.loss, c.beta, c.smoothing, c.gamma, 1, 1, c.center};
    const Array<double> sums = sums_of_pairs();
    const Result r = run(settings, sums);
    double loss = 0, chosen_logp = 0;
    std::size_t slot = 0;
    for (const reference::PairNumbers& p : pairs) {
      if (&p == &pairs[1]) slot += 2;
      loss += reference::pair_loss(row.name, p, c);
      chosen_logp += p.chosen;
      const double by[] = {slope(row, p, c, &reference::PairNumbers::chosen),
                           slope(row, p, c, &reference::PairNumbers::rejected)};
      for (const std::size_t which : {0, 1}) {
        EXPECT_NEAR(r.dsums[(slot + which) * 3], by[which], 1e-8 * (1 + std::abs(by[which]))) << which;
        EXPECT_EQ(r.logps[slot + which], which == 0 ? p.chosen : p.rejected);
      }
      slot += 2;
    }
    EXPECT_NEAR(r.losses[0], loss, 1e-12 * (1 + std::abs(loss)));
    EXPECT_EQ(r.losses[1], 4);
    for (const std::size_t count : {0, 1, 2}) EXPECT_EQ(r.report[count], 4);
    EXPECT_NEAR(r.report[6], chosen_logp, 1e-12 * std::abs(chosen_logp));
    EXPECT_EQ(run(settings, sums, false).losses[0], r.losses[0]);
    for (const std::size_t none : {2, 3, 10, 11}) EXPECT_EQ(r.dsums[none * 3], 0) << "slot " << none;
  }
}

TEST(PairLosses, ReportRewardsOfTheReference) {
  const Result r = run({PairLoss::sigmoid, 0.5}, sums_of_pairs());
  EXPECT_NEAR(r.report[3], 0.5 * (0.5 - 2 + 0 + 6.5), 1e-12);
  EXPECT_NEAR(r.report[4], 0.5 * (-2 + 1 + 0 - 29), 1e-12);
  EXPECT_EQ(r.report[5], 2)
      << "of the second pair the rejected answer has more, of the third both have the same";
  EXPECT_NEAR(r.report[7], -9 - 12 - 4.25 - 60, 1e-12);
}

/// Answers that are nearly certain, or whose margin no exponential holds, have finite gradients.
TEST(PairLosses, AreFiniteFarOut) {
  for (const PairLossRow& row : pair_losses) {
    if (row.labelled || row.loss == PairLoss::discopop) continue;  // discopop's exponential is its definition
    for (const double margin : {2000.0, -2000.0}) {
      const Result r = run({row.loss, 1, row.smoothed ? 0.1 : 0.0, 0}, {margin - 2001, 1, 0, -2001, 1, 0});
      for (const double value : {r.losses[0], r.dsums[0], r.dsums[3]})
        EXPECT_TRUE(std::isfinite(value)) << row.name << " " << margin;
    }
  }
}

/// Slots of a desirable answer, an undesirable one, and two empty ones; each answer has another beside it.
TEST(LabelLosses, AreThoseOfTheReference) {
  const Array<double> sums{-8, 5, -8.5, -20, 3, -21, 0,  0, 0,   0,   0, 0,
                           0,  0, 0,    0,   0, 0,   -6, 4, -10, -30, 7, -30.5};
  const Array<double> divergence{1.5, 2};  // its mean is 0.75
  for (const bool is_kto : {true, false}) {
    const PairSettings settings{is_kto ? PairLoss::kto : PairLoss::apo_zero_unpaired, 0.3, 0, 0, 1.5, 0.5};
    const Result r = run(settings, sums, true, is_kto ? divergence.data() : nullptr);
    const double kl = is_kto ? 0.75 : 0;
    const double x = 0.3 * (0.5 - kl), y = 0.3 * (kl - 4);
    EXPECT_NEAR(r.losses[0], 1.5 * (1 - reference::sigmoid(x)) + 0.5 * (1 - reference::sigmoid(y)), 1e-12);
    EXPECT_EQ(r.losses[1], 2);
    EXPECT_NEAR(r.dsums[0], -1.5 * 0.3 * reference::sigmoid(x) * reference::sigmoid(-x), 1e-12);
    EXPECT_NEAR(r.dsums[18], 0.5 * 0.3 * reference::sigmoid(y) * reference::sigmoid(-y), 1e-12);
    for (const std::size_t other : {3, 6, 9, 12, 15, 21}) EXPECT_EQ(r.dsums[other], 0) << other;
    EXPECT_EQ(std::vector<double>(r.report.begin(), r.report.begin() + 3), (std::vector<double>{2, 1, 1}));
    EXPECT_NEAR(r.report[3], 0.3 * 0.5, 1e-12);
    EXPECT_NEAR(r.report[4], 0.3 * 4, 1e-12);
    EXPECT_TRUE(std::isnan(r.report[5])) << "answers with labels have no accuracy";
    EXPECT_EQ(r.report[6], -8);
    EXPECT_EQ(r.report[7], -6);
    EXPECT_EQ(r.report[8], 2 * kl);
  }
}

TEST(LabelLosses, CompareWithNoDivergenceBelowZero) {
  const Array<double> sums{-8, 5, -8.5, -20, 3, -21, 0, 0, 0, 0, 0, 0}, below{-3, 2};
  EXPECT_EQ(run({PairLoss::kto, 0.3}, sums, true, below.data()).losses[0],
            run({PairLoss::kto, 0.3}, sums).losses[0]);
}

TEST(KlSums, AreOfTheAnswersBeside) {
  const TestExec exec;
  const Array<double> sums{-8, 5, -8.5, -20, 3, -21, -1, 0, 0,   -2,  0, 0,
                           -3, 0, 0,    0,   0, 0,   -6, 4, -10, -30, 7, -30.5};
  Array<double> kl(2, 7);
  kl_sums(*exec, {sums.data(), 8, 3}, view(kl));
  EXPECT_EQ(doubles(kl), (std::vector<double>{1.5, 2}));
}

TEST(SequenceSums, AddTokensOfASlot) {
  const TestExec exec;
  const Array<double> nll{1, 2, 0, 4, 8, 16, 0}, reference{-5, 0, 0, -6, 0, 0, 0};
  const Array<float> weights{1, 1, 0, 1, 1, 0.5f, 0};
  const Array<std::int32_t> sequences{0, 0, 0, 2, 2, 2, 2};
  Array<double> sums(4 * 3, 7);
  sequence_sums(*exec, {view(nll), view(weights), view(sequences), view(reference)}, {sums.data(), 4, 3});
  EXPECT_EQ(doubles(sums), (std::vector<double>{-3, 2, -5, 0, 0, 0, -28, 2.5, -6, 0, 0, 0}));
  const Array<double> dsums{0.5, 0, 0, 9, 9, 9, -0.25, 0, 0, 9, 9, 9};
  Array<double> dnll(7);
  sequence_sums_backward(*exec, {dsums.data(), 4, 3}, view(sequences), view(dnll));
  EXPECT_EQ(doubles(dnll), (std::vector<double>{-0.5, -0.5, -0.5, 0.25, 0.25, 0.25, 0.25}));
}

TEST(PreferenceReport, AddsMicroBatches) {
  const TestExec exec;
  const Array<double> reports{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90};
  Array<double> report(preference_sums, 7);
  preference_report(*exec, {reports.data(), 2, preference_sums}, view(report));
  EXPECT_EQ(doubles(report), (std::vector<double>{11, 22, 33, 44, 55, 66, 77, 88, 99}));
  preference_report(*exec, {}, view(report));
  EXPECT_EQ(doubles(report), std::vector<double>(preference_sums));
}

}  // namespace
}  // namespace ztrain::kernels::kernels_preference_test
