#include "plan/zero_paper.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"

namespace ztrain::plan {
namespace {

struct Stage {
  const char *strategy, *formula;
};
constexpr std::array<Stage, 4> zero_stages{{{"NO_SHARD", "16 P"},
                                            {"zero1", "4 P + 12 P / N"},
                                            {"zero2", "2 P + 14 P / N"},
                                            {"FULL_SHARD", "16 P / N"}}};

std::string gb(double bytes) {
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string strategies_text(const ZeroPaperQuestion& q, double beside) {
  Table table({"strategy", "formula", "states per rank", "with what is beside", "fits"});
  for (const Stage& s : zero_stages) {
    const double states =
        zero_paper_bytes(q.parameters, config::find_strategy(s.strategy), static_cast<double>(q.ranks));
    table.row({s.strategy, s.formula, gb(states), gb(states + beside),
               states + beside <= q.device_bytes ? "yes" : "no"});
  }
  return table.text(2);
}

}  // namespace

double zero_paper_bytes(double parameters, const config::Strategy& strategy, double ranks, double frozen) {
  const auto share = [&](bool sharded) { return sharded ? 1 / ranks : 1.0; };
  return frozen * weight_bytes * share(strategy.parameters_sharded) +
         parameters * (weight_bytes * share(strategy.parameters_sharded) +
                       gradient_bytes * share(strategy.gradients_sharded) +
                       optimizer_bytes * share(strategy.optimizer_sharded));
}

std::int64_t zero_paper_floor(double parameters, double device_bytes) {
  return static_cast<std::int64_t>(
      std::ceil((weight_bytes + gradient_bytes + optimizer_bytes) * parameters / device_bytes));
}

std::vector<ZeroPaperRow> zero_paper_sizes(double parameters, double device_bytes, double beside,
                                           int ranks_per_node, int most) {
  std::vector<ZeroPaperRow> rows;
  const config::Strategy& full = config::find_strategy("FULL_SHARD");
  std::int64_t ranks = round_up(zero_paper_floor(parameters, device_bytes), ranks_per_node);
  for (bool roomy = false; !roomy && static_cast<int>(rows.size()) < most; ranks += ranks_per_node) {
    const double bytes = zero_paper_bytes(parameters, full, static_cast<double>(ranks)) + beside;
    rows.push_back({ranks, bytes, bytes <= device_bytes});
    roomy = bytes <= device_bytes * 2 / 3;
  }
  return rows;
}

std::string zero_paper_text(const ZeroPaperQuestion& q) {
  constexpr double most_devices = 1e15;  // beyond it counts are no longer exact
  const double devices = (weight_bytes + gradient_bytes + optimizer_bytes) * q.parameters / q.device_bytes;
  REQUIRE(devices <= most_devices,
          "ztrain plan: the states of {:.3g} parameters fill {:.3g} devices of {}, and {:.0e} are the most "
          "that are counted: give fewer --parameters, or more --device-memory",
          q.parameters, devices, gb(q.device_bytes), most_devices);
  const double beside = q.beside_bytes.value_or(q.device_bytes / 4);
  std::string text = fmt::format(
      "{} parameters on {} of {}; 16 bytes a parameter: weight 2, gradient 2, master and Adam 12\n"
      "(ZeRO's formula for bf16 with Adam; states alone. GB is 1e9 bytes. With a deck, `ztrain plan` counts "
      "all.)\n\n",
      format_count(q.parameters), count_text(q.ranks, "rank"), gb(q.device_bytes));
  text += strategies_text(q, beside);
  text += fmt::format("\nOne copy of the states fills {} of these devices: the floor.\n",
                      zero_paper_floor(q.parameters, q.device_bytes));
  text +=
      fmt::format("With {} beside the states on each rank{}, FULL_SHARD on whole nodes of {}:\n\n",
                  gb(beside), q.beside_bytes ? "" : " (a quarter of the device: --beside)", q.ranks_per_node);
  Table table({"ranks", "per rank", "fits"});
  for (const ZeroPaperRow& r : zero_paper_sizes(q.parameters, q.device_bytes, beside, q.ranks_per_node))
    table.row({fmt::to_string(r.ranks), gb(r.bytes), r.fits ? "yes" : "no"});
  return text + table.text(2);
}

}  // namespace ztrain::plan
