#pragma once
// The optimizers there are: to add one, write its header beside these and name it here.

#include <tuple>

#include "optimizers/adam.hpp"
#include "optimizers/adamw.hpp"
#include "optimizers/adamw_8bit.hpp"
#include "optimizers/lion.hpp"
#include "optimizers/sgd.hpp"

namespace ztrain::optimizers {

using Rules = std::tuple<AdamW, Adam, Sgd, Lion, AdamW8bit>;

}  // namespace ztrain::optimizers
