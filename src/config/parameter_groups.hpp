#pragma once
// Finds a parameter's learning rate and weight decay by its name.

#include <string_view>

#include "config/deck.hpp"

namespace ztrain::config {

struct ParameterSettings {
  double lr_scale = 1;  ///< factor of the scheduled learning rate
  double weight_decay = 0;
};

/// Returns the settings of a parameter. The last matching row of optimizer.groups gives lr_scale and, if it
/// has one, the decay. Otherwise lr_scale is 1 and the decay is optimizer.weight_decay, or 0 for a parameter
/// that is not `decayed` by its kind (norms, biases) or that optimizer.no_decay matches.
ParameterSettings settings_of(const Optimizer& optimizer, std::string_view parameter, bool decayed);

}  // namespace ztrain::config
