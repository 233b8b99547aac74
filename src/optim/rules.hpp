#pragma once
// Lists the optimizers. To add one, write its header beside these and name it here.

#include <tuple>
#include <utility>

#include "optim/adam.hpp"
#include "optim/adamw.hpp"
#include "optim/adamw_8bit.hpp"
#include "optim/ema.hpp"
#include "optim/lion.hpp"
#include "optim/muon.hpp"
#include "optim/onebit_adam.hpp"
#include "optim/sgd.hpp"

namespace ztrain::optim {

using Rules = std::tuple<AdamW, Adam, Sgd, Lion, AdamW8bit, Muon, OneBitAdam>;

/// The rules that kernels step by, with those that no deck names.
using StepRules = decltype(std::tuple_cat(std::declval<Rules>(), std::declval<std::tuple<MuonMove, Ema>>()));

}  // namespace ztrain::optim
