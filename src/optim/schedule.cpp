#include "optim/schedule.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace ztrain::optim {
namespace {

/// Where a step lies, after the warmup.
struct Progress {
  double whole;  ///< of the time from the end of the warmup to the end of the run
  double tail;   ///< of the last schedule.decay steps
};

double constant(const Progress&) {
  return 1;
}
double linear(const Progress& p) {
  return 1 - p.whole;
}
double cosine(const Progress& p) {
  return (1 + std::cos(std::numbers::pi * p.whole)) / 2;
}
double wsd(const Progress& p) {
  return 1 - p.tail;
}

struct Row {
  const char* name;
  double (*factor)(const Progress&);
};
constexpr std::array rows{Row{"constant", constant}, Row{"linear", linear}, Row{"cosine", cosine},
                          Row{"wsd", wsd}};

/// How far step is on the way from begin to end, within [0, 1].
double fraction(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step >= end) return 1;
  return step <= begin ? 0 : static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

double learning_rate(const Schedule& schedule, double peak, std::int64_t step, std::int64_t total_steps) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return schedule.name == r.name; });
  REQUIRE(row != rows.end(), "schedule.name = \"{}\" is unknown; legal: {}", schedule.name,
          fmt::join(schedule_names(), ", "));
  if (step < schedule.warmup)
    return peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  const Progress progress{fraction(step, schedule.warmup, total_steps),
                          fraction(step, total_steps - schedule.decay, total_steps)};
  return peak * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * row->factor(progress));
}

double bias_correction(double beta, std::int64_t t) {
  return -std::expm1(static_cast<double>(t) * std::log(beta));  // log(0) = -inf gives 1, as it should
}

}  // namespace ztrain::optim
