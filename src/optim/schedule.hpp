#pragma once
// Learning-rate schedules. `step` counts optimizer steps from 0; w = warmup_steps(), r =
// schedule.min_lr_ratio, T = total_steps, d = schedule.decay.
//
// Warmup, for step < w:      peak (step + 1) / w
// After it:                  peak (r + (1 - r) f), with f the schedule's factor (Progress)
//
// A schedule is a row of the table in schedule.cpp. The legal values of schedule.name, its documentation and
// the checks of schedule.decay follow from the table.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ztrain::optim {

/// Values of [schedule] in the deck.
struct Schedule {
  std::string name;         ///< name of a row of schedules()
  double warmup = 0;        ///< steps; below 1 a share of the run's steps
  std::int64_t decay = 0;   ///< steps of the final decay, if the schedule has one
  double min_lr_ratio = 0;  ///< final learning rate over optimizer.lr
};

/// Progress of a step after the warmup, from 0 to 1. From step T on both members stay 1.
struct Progress {
  double whole;  ///< (step - w) / (T - w)
  double tail;   ///< (step - (T - d)) / d; 0 until step T - d
};

struct ScheduleInfo {
  std::string_view name;
  std::string_view doc;  ///< Text on how the learning rate goes after the warmup, without the full stop.
  bool needs_decay;      ///< Whether the schedule has a final decay, and a deck must give schedule.decay.
  double (*factor)(const Progress&);  ///< Returns 1 at the peak and 0 at the final learning rate.
};

/// Returns all rows, in the order in which messages and documentation list them.
std::span<const ScheduleInfo> schedules();

std::vector<std::string> schedule_names();

/// Returns whether the schedule has a final decay; false if no schedule has this name.
bool needs_decay(const Schedule& schedule);

/// Returns the steps of the warmup. A share is rounded up to whole steps, as transformers does.
std::int64_t warmup_steps(const Schedule& schedule, std::int64_t total_steps);

/// Returns the learning rate of optimizer step `step`. Throws Error naming schedule.name if there is no such
/// schedule.
double learning_rate(const Schedule& schedule, double peak, std::int64_t step, std::int64_t total_steps);

/// Returns 1 - beta^t, by which Adam divides its moments (Kingma and Ba, "Adam", ICLR 2015). t >= 1 is the
/// number of optimizer steps taken, this one included. Accurate for beta near 1.
double bias_correction(double beta, std::int64_t t);

}  // namespace ztrain::optim
