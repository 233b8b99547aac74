#pragma once
// How many tokens a token attends to: what the cost of attention is proportional to.

#include <algorithm>
#include <cstdint>

#include "base/block_layout.hpp"
#include "kernels/attention/record.hpp"

namespace ztrain::model {

/// The mean over a sequence of causal attention, of which a window (0: none) keeps the last tokens:
/// half the sequence, or with a window w below it w (1 - w / (2 sequence)).
constexpr double attention_span(std::int64_t sequence, std::int64_t window) {
  const auto s = static_cast<double>(sequence);
  const double w = window > 0 ? static_cast<double>(std::min(window, sequence)) : s;
  return w - w * w / (2 * s);
}

/// Returns the same for an attention, whose layout of blocks may leave keys out.
constexpr double attention_span(std::int64_t sequence, const Attention& attention) {
  const BlockLayout layout = BlockLayout::of(attention.layout);
  return layout.is_on() ? layout.mean_keys(attention.window) : attention_span(sequence, attention.window);
}

}  // namespace ztrain::model
