#include "telemetry/step_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.hpp"

namespace ztrain::telemetry {
namespace {

constexpr std::size_t columns = 11;
constexpr std::array<const char*, columns> names{"step",   "loss",         "grad_norm", "lr",
                                                 "memory", "tokens/s",     "tflops",    "mfu",
                                                 "data",   "comm-exposed", "time left"};
constexpr std::array<int, columns> widths{13, 9, 9, 9, 16, 10, 8, 6, 6, 12, 9};

std::string number(const char* format, double value) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : std::isnan(value) ? "-" : "inf";
}

std::string percent(double share) {
  return number("{:.1f}%", 100 * share);
}

std::string memory(const StepLine& line) {
  const std::string used = number("{:.2f} GiB", line.memory_bytes / (1024.0 * 1024.0 * 1024.0));
  return line.memory_limit > 0
             ? fmt::format("{} ({:.0f}%)", used, 100 * line.memory_bytes / line.memory_limit)
             : used;
}

std::string joined(const std::array<std::string, columns>& cells) {
  std::string text;
  for (std::size_t c = 0; c < columns; ++c)
    text += fmt::format("{}{:>{}}", c == 0 ? "" : "  ", cells[c], widths[c]);
  return text;
}

std::string offload_cells(const std::string& copied, const std::string& waited) {
  return fmt::format("  {:>11}  {:>9}", copied, waited);
}

std::string two_cells(const std::string& first, const std::string& second) {
  return fmt::format("  {:>9}  {:>8}", first, second);
}

std::string plain_line(const StepLine& l) {
  return joined({l.steps > 0 ? fmt::format("{}/{}", l.step, l.steps) : fmt::format("{}", l.step),
                 number("{:.4f}", l.loss), number("{:.3g}", l.grad_norm), number("{:.2e}", l.lr), memory(l),
                 number("{:.0f}", l.tokens_per_s), number("{:.2f}", l.tflops), percent(l.mfu),
                 percent(l.data_share), percent(l.exposed_share),
                 std::isfinite(l.seconds_left) ? format_duration(l.seconds_left) : "-"});
}

}  // namespace

std::string step_header(ExtraColumns extra) {
  std::array<std::string, columns> cells;
  std::copy(names.begin(), names.end(), cells.begin());
  return joined(cells) + (extra.pipeline ? fmt::format("  {:>6}", "bubble") : "") +
         (extra.offload ? offload_cells("tier-copies", "nvme-wait") : "") +
         (extra.experts ? two_cells("balance", "max-load") : "") +
         (extra.pairs ? two_cells("margin", "accuracy") : "");
}

std::string step_line(const StepLine& l) {
  const std::string offload =
      l.copied_share ? offload_cells(percent(*l.copied_share), percent(l.drives_share.value_or(0))) : "";
  const std::string bubble = l.bubble_share ? fmt::format("  {:>6}", percent(*l.bubble_share)) : "";
  const std::string experts = l.balance_loss ? two_cells(number("{:.4f}", *l.balance_loss),
                                                         number("{:.2f}", l.expert_load_max.value_or(0)))
                                             : "";
  const std::string pairs =
      l.margin ? two_cells(number("{:.4f}", *l.margin), number("{:.3f}", l.accuracy.value_or(0))) : "";
  return plain_line(l) + bubble + offload + experts + pairs;
}

}  // namespace ztrain::telemetry
