#pragma once
// Lists the optimizers. To add one, write its header beside these and name it here.

#include <tuple>

#include "optim/adam.hpp"
#include "optim/adamw.hpp"
#include "optim/adamw_8bit.hpp"
#include "optim/lion.hpp"
#include "optim/sgd.hpp"

namespace ztrain::optim {

using Rules = std::tuple<AdamW, Adam, Sgd, Lion, AdamW8bit>;

}  // namespace ztrain::optim
