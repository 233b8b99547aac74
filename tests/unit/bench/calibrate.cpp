// How the rates of a node follow from the times of decks.

#include "bench/calibrate/calibrate.hpp"

#include <gtest/gtest.h>

namespace ztrain::bench::calibrate_test {
namespace {

/// A deck whose step takes longer than its parts: a tenth more of its kernels, half more of its collectives,
/// and 2 us for each op.
DeckTimes deck_of(int kernels, int collectives, double bytes, double turns) {
  DeckTimes deck;
  const plan::Measurement kernel{{bytes, 0, 0}, 1e-5 + bytes * 1e-9},
      gather{{bytes, 0, 1}, 2e-5 + bytes * 2e-9};
  deck.kernels["rmsnorm.bf16"] = {{kernel, kernels}};
  deck.collectives["all_gather"] = {{gather, collectives}};
  deck.step = turns * kernels * kernel.seconds * 1.1 + collectives * gather.seconds * 1.5 +
              (kernels + collectives) * 2e-6;
  return deck;
}

TEST(Calibrate, WholeStepsSayWhatTheirPartsDoNot) {
  for (const auto& [ranks, turns] : {std::pair{2, 1.0}, {4, 2.0}}) {
    const std::vector<DeckTimes> decks{deck_of(100, 10, 1e3, turns), deck_of(20, 40, 1e4, turns),
                                       deck_of(50, 5, 1e5, turns), deck_of(10, 10, 1e6, turns)};
    const plan::RatesOfNode node = rates_of(decks, ranks, 2);
    EXPECT_NEAR(node.more_of_kernels, 0.1, 1e-6);
    EXPECT_NEAR(node.more_of_collectives, 0.5, 1e-6);
    EXPECT_NEAR(node.each_op, 2e-6, 1e-12);
    EXPECT_LT(node.steps.worst, 1e-6);
    const plan::KernelRate& kernel = node.kernels.at("rmsnorm.bf16").rate;
    EXPECT_NEAR(turns * kernel.seconds({1e6, 0, 0}), turns * 1.1 * (1e-5 + 1e-3) + 2e-6, 1e-9)
        << "ranks that take turns are multiplied by the plan";
    EXPECT_NEAR(node.kernels.at("all_gather").rate.seconds({1e6, 0, 1}), 1.5 * (2e-5 + 2e-3) + 2e-6, 1e-9);
    EXPECT_TRUE(node.kernels.contains("send") && node.kernels.contains("other"));
  }
}

}  // namespace
}  // namespace ztrain::bench::calibrate_test
