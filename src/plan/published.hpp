#pragma once
// Speeds that others measured and published (published.toml), of which a report names the nearest beside its
// own estimate.

#include <optional>
#include <string>

#include "plan/cost.hpp"

namespace ztrain::plan {

struct Published {
  std::string source;     ///< who measured, and on how many devices
  double parameters = 0;  ///< of the model
  double ranks = 0, sequence = 0;
  double tokens = 0;  ///< tokens/s and rank
};

/// The row of the same preset of devices and precision that is nearest in parameters, ranks and length of the
/// sequences, by their ratios. Nothing where none is within a factor of 4 in parameters, or no preset tells
/// of the device.
std::optional<Published> nearest_published(const Cost& cost);

}  // namespace ztrain::plan
