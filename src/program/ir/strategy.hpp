#pragma once
// Sharding strategies, as the passes read them: the rows of config's table.

#include "config/strategy.hpp"

namespace ztrain::program {

using config::find_strategy;
using config::strategies;
using config::Strategy;

}  // namespace ztrain::program
