// Rates that are fitted to measurements, written as a machine file, and read back.

#include "plan/rates/fit_rates.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "plan/rates/write_rates.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/plan_decks.hpp"

namespace ztrain::plan::fit_rates_test {
namespace {

using test::error_of;

void expect_same(const KernelRate& found, const KernelRate& expected, double apart) {
  EXPECT_NEAR(found.fixed, expected.fixed, apart * expected.fixed);
  EXPECT_NEAR(found.per_byte, expected.per_byte, apart * expected.per_byte);
  EXPECT_NEAR(found.per_flop, expected.per_flop, apart * expected.per_flop);
  EXPECT_NEAR(found.per_hop, expected.per_hop, apart * expected.per_hop);
}

std::vector<Measurement> measured_by(const KernelRate& rate, bool hops) {
  std::vector<Measurement> all;
  for (const double size : {1e3, 4e4, 3e5, 2e6})
    for (const double depth : {1.0, 40.0, 300.0}) {
      const KernelWork work{size, size * depth, hops ? depth : 0};
      all.push_back({work, rate.seconds(work)});
    }
  return all;
}

TEST(FitKernel, FindsTheRatesThatMadeTheTimes) {
  const KernelRate product{3e-6, 1e-10, 2e-12, 0}, copy{1e-6, 5e-11, 0, 0}, sum{2e-5, 1e-9, 0, 4e-6};
  expect_same(fit_kernel(measured_by(product, false)), product, 1e-6);
  expect_same(fit_kernel(measured_by(copy, false)), copy, 1e-6);
  expect_same(fit_kernel(measured_by(sum, true)), sum, 1e-6);
  EXPECT_LT(error_of(sum, measured_by(sum, true)).worst, 1e-12);
}

TEST(FitKernel, TakesNoTimeAwayForMoreWork) {
  // More bytes at the same FLOPs are faster here, by accident: a plain fit has a negative bandwidth.
  const std::vector<Measurement> measured{{{100, 1000, 0}, 10}, {{200, 1000, 0}, 9}, {{100, 2000, 0}, 20}};
  const KernelRate rate = fit_kernel(measured);
  EXPECT_EQ(rate.per_byte, 0);
  EXPECT_GT(rate.per_flop, 0);
  EXPECT_NEAR(rate.seconds({100, 1000, 0}), 9.5, 0.2) << "between both";
  EXPECT_EQ(fit_kernel({}).fixed, 0);
  EXPECT_EQ(fit_kernel(std::vector<Measurement>{{{1, 1, 0}, 0}}).fixed, 0) << "too short to be timed";
}

class MachineText : public test::Decks {
 protected:
  static Calibration calibration() {
    Calibration c;
    c.processor = "a processor", c.cores = 2, c.peak_flops = 3e11;
    for (const int ranks : {1, 2, 4}) {
      RatesOfNode& node = c.by_ranks[ranks];
      node.kernels["rmsnorm.bf16"] = {{ranks * 1e-6, 1e-10, 2e-12, 0}, 5, {0.01, 0.02}};
      node.kernels["rmsnorm"] = {{ranks * 2e-6, 0, 0, 0}, 1, {}};
      node.kernels["all_gather"] = {{ranks * 1e-5, 3e-10, 0, 5e-6}, 3, {}};
    }
    return c;
  }
  std::string write(const std::string& text) const {
    const std::string path = (folder / "machine.toml").string();
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(MachineText, IsReadBackToTheSameRates) {
  const Calibration c = calibration();
  const std::string path = write(machine_text(c));
  for (const auto& [asked, nearest] : {std::pair{1, 1}, {2, 2}, {3, 4}, {4, 4}, {64, 4}}) {
    const Rates rates = read_rates(path, asked);
    EXPECT_EQ(rates.cores, 2);
    ASSERT_EQ(rates.kernels.size(), 3u);
    for (const auto& [name, fitted] : c.by_ranks.at(nearest).kernels)
      expect_same(rates.kernels.at(name), fitted.rate, 1e-5);
  }
  EXPECT_EQ(read_rates(path).cluster, std::vector<std::string>{"cluster.peak_tflops=0.3"});
}

TEST_F(MachineText, RefusesWhatIsCutOrMisspelt) {
  const std::string text = machine_text(calibration());
  const auto refusal = [&](const std::string& wrong) {
    return error_of([&] { read_rates(write(wrong), 1); });
  };
  const std::string cut = refusal(text.substr(0, text.rfind("\n# ")));
  EXPECT_NE(cut.find("it has 8 sections of kernels and products, and says sections = 9"), std::string::npos)
      << cut;
  std::string misspelt = text;
  misspelt.replace(misspelt.rfind("bandwidth"), 9, "bandwith");
  const std::string unknown = refusal(misspelt);
  EXPECT_NE(
      unknown.find("ranks_on_node.4: kernel.rmsnorm.bf16 has no key bandwith: legal are fixed, bandwidth"),
      std::string::npos)
      << unknown << " though another number of ranks is asked for";
  EXPECT_NE(refusal("[ranks_on_node.two]\n").find("whose name is a number of ranks"), std::string::npos);
  EXPECT_NE(refusal("[ranks_on_node.2.cluster]\n").find("has no key cluster"), std::string::npos);
}

}  // namespace
}  // namespace ztrain::plan::fit_rates_test
