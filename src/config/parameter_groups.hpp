#pragma once
// Which learning rate and weight decay a parameter has, by its name.

#include <string_view>

#include "config/deck.hpp"

namespace ztrain::config {

struct ParameterSettings {
  double lr_scale = 1;  ///< times the scheduled learning rate
  double weight_decay = 0;
};

/// The last row of optimizer.groups that matches the parameter gives lr_scale and, where it has one, the
/// decay. Otherwise they are 1 and optimizer.weight_decay, or 0 for a parameter that is not `decayed` by its
/// kind (norms, biases) or that a pattern of optimizer.no_decay matches.
ParameterSettings settings_of(const Optimizer& optimizer, std::string_view parameter, bool decayed);

}  // namespace ztrain::config
