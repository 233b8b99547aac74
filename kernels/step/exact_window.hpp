#pragma once
// A part of an ExactSum that stays in registers: a thread of a GPU adds many terms of about the same size,
// and hands the few limbs that they touch to the sum in memory.

#include <cstdint>

#include "base/function.hpp"
#include "kernel_interface/exact_sum.hpp"

namespace ztrain::kernels {

/// Four limbs of an ExactSum. What would leave them is handed over as spill(limb, value), to be added to that
/// limb; limb ExactSum::limbs stands for not_finite, of which only whether it is 0 counts. Up to 2^30 terms.
class ExactWindow {
 public:
  template <class Spill>
  ZTRAIN_FUNCTION void add(double term, const Spill& spill) {
    if (term == 0) return;
    const ExactSum::Parts parts = ExactSum::split(term);
    not_finite_ |= parts.not_finite;
    if (parts.first < first_ || parts.first > first_ + 1) {
      flush(spill);
      first_ = parts.first;
    }
    const bool above = parts.first != first_;
    limbs_[0] += above ? 0 : parts.low;
    limbs_[1] += above ? parts.low : parts.middle;
    limbs_[2] += above ? parts.middle : parts.high;
    limbs_[3] += above ? parts.high : 0;
  }

  /// Hands over all, and is empty then.
  template <class Spill>
  ZTRAIN_FUNCTION void flush(const Spill& spill) {
    for (int i = 0; i < 4; ++i) {
      if (limbs_[i] != 0) spill(first_ + i, limbs_[i]);
      limbs_[i] = 0;
    }
    if (not_finite_ != 0) spill(ExactSum::limbs, not_finite_);
    not_finite_ = 0;
  }

 private:
  int first_ = 0;
  std::int64_t limbs_[4] = {}, not_finite_ = 0;
};

}  // namespace ztrain::kernels
