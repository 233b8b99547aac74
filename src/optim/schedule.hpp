#pragma once
// Learning-rate schedules. `step` counts optimizer steps from 0; w = schedule.warmup, r =
// schedule.min_lr_ratio, T = total_steps, d = schedule.decay.
//
// Warmup, for step < w:      peak (step + 1) / w
// After it:                  peak (r + (1 - r) f(p)), with p the progress from 0 to 1 and
//   constant                 f = 1
//   linear                   f = 1 - p,               p = (step - w) / (T - w)
//   cosine                   f = (1 + cos(pi p)) / 2, p = (step - w) / (T - w)
//                            (Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts",
//                            ICLR 2017)
//   wsd                      f = 1 until step T - d, then 1 - p with p = (step - (T - d)) / d
//                            (warmup, stable, decay: Hu et al., "MiniCPM", 2024)
// From step T on, p stays 1.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::optim {

/// [schedule] of the deck.
struct Schedule {
  std::string name;         ///< constant | linear | cosine | wsd
  std::int64_t warmup = 0;  ///< steps
  std::int64_t decay = 0;   ///< steps of the final decay (wsd)
  double min_lr_ratio = 0;  ///< final learning rate over optimizer.lr
};

/// The learning rate of optimizer step `step`. Throws Error naming schedule.name when there is no such
/// schedule.
double learning_rate(const Schedule& schedule, double peak, std::int64_t step, std::int64_t total_steps);

/// 1 - beta^t, t >= 1 the number of optimizer steps taken including this one: what Adam divides its moments
/// by (Kingma and Ba, "Adam", ICLR 2015). Accurate for beta near 1.
double bias_correction(double beta, std::int64_t t);

std::vector<std::string> schedule_names();

}  // namespace ztrain::optim
