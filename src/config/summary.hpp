#pragma once
// A deck's choices in a line each, as banners and plans print them.

#include <string>

#include "config/deck.hpp"

namespace ztrain::config {

/// "FULL_SHARD, gradients auto, reshard auto, prefetch 1 and pre, units by block, recompute none", and what
/// else differs from its default.
std::string strategy_summary(const Deck& deck);

/// "parameters bf16, gradients fp32, ..."; with fp16 also the loss scale.
std::string precision_summary(const Deck& deck);

/// "adamw, lr 0.0003 (cosine), weight decay 0.1, clip 1"
std::string optimizer_summary(const Deck& deck);

}  // namespace ztrain::config
