#pragma once
// Writes what was measured on a machine as a machine file.

#include <map>
#include <string>

#include "plan/rates/fit_rates.hpp"

namespace ztrain::plan {

/// A rate that was fitted, and what it was fitted to.
struct FittedRate {
  KernelRate rate;
  int sizes = 0;   ///< measured sizes
  FitError error;  ///< of the fit to them
};

/// What was measured with some ranks at work on the node.
struct RatesOfNode {
  std::map<std::string, FittedRate> kernels;  ///< by kernel_name()
  /// What a step takes beside its kernels and collectives as they are measured one by one: more of each, as
  /// shares, and seconds of every op. The rates have it in them.
  double more_of_kernels = 0, more_of_collectives = 0, each_op = 0;
  int undisturbed = 0, decks = 0;  ///< decks whose steps that was found from, of all
  FitError steps;                  ///< of the steps that were measured, by these rates
};

struct Calibration {
  std::string processor;
  int threads = 1;        ///< of a rank
  double cores = 0;       ///< that the ranks share
  double peak_flops = 0;  ///< per second, of the fastest product
  std::map<int, RatesOfNode> by_ranks;
};

/// Returns the machine file, in which comments say how each number was measured.
std::string machine_text(const Calibration& calibration);

}  // namespace ztrain::plan
