#include "plan/rates/write_rates.hpp"

#include <fmt/format.h>

namespace ztrain::plan {
namespace {

std::string whole_percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

/// A rate of 0 is left out: the time does not depend on it.
std::string kernel_text(int ranks, const std::string& name, const FittedRate& fitted) {
  std::string text = fmt::format(
      "\n# {} measured size{}: the fit is off by {} (median), {} at most.\n[ranks_on_node.{}.kernel.{}]\n",
      fitted.sizes, fitted.sizes == 1 ? "" : "s", whole_percent(fitted.error.median),
      whole_percent(fitted.error.worst), ranks, name);
  const KernelRate& rate = fitted.rate;
  text += fmt::format("fixed = {:.6g}\n", rate.fixed * 1e6);
  if (rate.per_byte > 0) text += fmt::format("bandwidth = {:.6g}\n", 1e-9 / rate.per_byte);
  if (rate.per_flop > 0) text += fmt::format("rate = {:.6g}\n", 1e-12 / rate.per_flop);
  if (rate.per_hop > 0) text += fmt::format("hop = {:.6g}\n", rate.per_hop * 1e6);
  return text;
}

std::string node_text(int ranks, const RatesOfNode& node) {
  std::string text = fmt::format("\n# With {} rank{} at work. ", ranks, ranks == 1 ? "" : "s");
  if (node.undisturbed == 0)
    text +=
        "Other processes used the machine during all steps: what whole steps take beside their kernels\n"
        "# and collectives is not known. Calibrate again on a quiet machine.\n";
  else
    text += fmt::format(
        "Whole steps of {} decks (of {}; others were disturbed) took {} more than their\n"
        "# kernels, {} more than their collectives, and {:.2f} us for each op: the rates below have it in "
        "them. By them\n"
        "# these steps are off by {} (median), {} at most.\n",
        node.undisturbed, node.decks, whole_percent(node.more_of_kernels),
        whole_percent(node.more_of_collectives), 1e6 * node.each_op, whole_percent(node.steps.median),
        whole_percent(node.steps.worst));
  for (const auto& [name, fitted] : node.kernels) text += kernel_text(ranks, name, fitted);
  return text;
}

}  // namespace

std::string machine_text(const Calibration& c) {
  std::size_t sections = 0;
  for (const auto& [ranks, node] : c.by_ranks) sections += node.kernels.size();
  std::string text = fmt::format(
      "# Rates of a node, measured by `ztrain bench --calibrate`.\n"
      "# Processor: {}. {:g} cores, {} thread{} a rank.\n"
      "# `ztrain plan DECK --ranks N --machine FILE` takes the sections whose number of ranks is nearest to "
      "N.\n"
      "# Each kernel was timed within steps of small built-in decks, all ranks at work: CPU seconds of rank "
      "0, the\n"
      "# median of some steps. Collectives were timed by themselves, on all ranks at once: the fastest of 12 "
      "tries.\n"
      "# seconds = fixed + bytes / bandwidth + FLOPs / rate + hop x (members - 1); us, GB/s, TFLOP/s, us.\n"
      "# `other` holds for kernels that no deck had; `send` is half of what a pair of ranks exchanges.\n\n"
      "# Sections of kernels: fewer of them mean that the file was cut.\nsections = {}\n\n"
      "[cluster]\n# That of the fastest product.\npeak_tflops = {:.6g}\n\n"
      "[ranks]\n# Ranks that outnumber them take turns.\ncores = {:g}\n",
      c.processor, c.cores, c.threads, c.threads == 1 ? "" : "s", sections, c.peak_flops / 1e12, c.cores);
  for (const auto& [ranks, node] : c.by_ranks) text += node_text(ranks, node);
  return text;
}

}  // namespace ztrain::plan
