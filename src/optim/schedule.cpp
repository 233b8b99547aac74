#include "optim/schedule.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/error.hpp"

namespace ztrain::optim {
namespace {

double constant(const Progress&) {
  return 1;
}
double linear(const Progress& p) {
  return 1 - p.whole;
}
/// Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
double cosine(const Progress& p) {
  return (1 + std::cos(std::numbers::pi * p.whole)) / 2;
}
/// Warmup, stable, decay: Hu et al., "MiniCPM", 2024.
double wsd(const Progress& p) {
  return 1 - p.tail;
}

constexpr ScheduleInfo rows[]{
    {"constant", "stays at the peak", false, constant},
    {"linear", "falls linearly until the end of the run", false, linear},
    {"cosine", "falls along half a cosine until the end of the run", false, cosine},
    {"wsd", "stays at the peak and falls linearly over the last schedule.decay steps", true, wsd},
};

/// Returns null if no schedule has this name.
const ScheduleInfo* find_schedule(std::string_view name) {
  const auto row = std::ranges::find(rows, name, &ScheduleInfo::name);
  return row == std::end(rows) ? nullptr : row;
}

/// Returns how far step is on the way from begin to end, within [0, 1].
double fraction(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step >= end) return 1;
  return step <= begin ? 0 : static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

std::span<const ScheduleInfo> schedules() {
  return rows;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& row : rows) names.emplace_back(row.name);
  return names;
}

bool needs_decay(const Schedule& schedule) {
  const ScheduleInfo* row = find_schedule(schedule.name);
  return row != nullptr && row->needs_decay;
}

std::int64_t warmup_steps(const Schedule& schedule, std::int64_t total_steps) {
  const double steps =
      schedule.warmup < 1 ? std::ceil(schedule.warmup * static_cast<double>(total_steps)) : schedule.warmup;
  return static_cast<std::int64_t>(steps);
}

double learning_rate(const Schedule& schedule, double peak, std::int64_t step, std::int64_t total_steps) {
  const ScheduleInfo* row = find_schedule(schedule.name);
  REQUIRE(row != nullptr, "schedule.name = \"{}\" is unknown; legal: {}", schedule.name,
          fmt::join(schedule_names(), ", "));
  const std::int64_t warmup = warmup_steps(schedule, total_steps);
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const Progress progress{fraction(step, warmup, total_steps),
                          fraction(step, total_steps - schedule.decay, total_steps)};
  return peak * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * row->factor(progress));
}

double bias_correction(double beta, std::int64_t t) {
  return -std::expm1(static_cast<double>(t) * std::log(beta));  // log(0) = -inf correctly gives 1
}

}  // namespace ztrain::optim
