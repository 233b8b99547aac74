#include "kernels/optimizer/step_ahead.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/optimizer/optimizer_data.hpp"

namespace ztrain::kernels {

StepAhead::StepAhead(std::shared_ptr<HostOptimizerStep> step, std::vector<KeptArray> kept,
                     std::vector<OptimizerPiece> pieces, std::int64_t elements)
    : step_(std::move(step)),
      kept_(std::move(kept)),
      pieces_(std::move(pieces)),
      first_blocks_(first_blocks(pieces_)),
      elements_(elements) {
  ASSERT(std::ranges::is_sorted(pieces_, {}, &OptimizerPiece::begin),
         "{} pieces of a step ahead of the norm do not lie one after another", pieces_.size());
}

void StepAhead::take(std::int64_t begin, std::int64_t end, StepScalars scalars) const {
  each_array(begin, end, [](const KeptArray& array, std::int64_t from, std::size_t bytes) {
    std::memcpy(array.copy + from, array.stepped + from, bytes);
  });
  scalars.gradient_multiplier = scalars.unclipped_multiplier();
  scalars.found_inf = 0;
  step_->run(begin, end, scalars);
}

void StepAhead::settle(std::int64_t begin, std::int64_t end, const StepScalars& scalars) const {
  if (scalars.unclipped_steps_stand()) return;
  each_array(begin, end, [](const KeptArray& array, std::int64_t from, std::size_t bytes) {
    std::memcpy(array.stepped + from, array.copy + from, bytes);
  });
  step_->run(begin, end, scalars);
}

std::int64_t StepAhead::begin_of(std::int64_t block) const {
  if (block == 0) return 0;
  const auto behind = std::upper_bound(first_blocks_.begin(), first_blocks_.end(), block);
  const std::size_t piece = at(behind - first_blocks_.begin() - 1);
  return pieces_[piece].begin + (block - first_blocks_[piece]) * optim::block;
}

template <class Copy>
void StepAhead::each_array(std::int64_t begin, std::int64_t end, const Copy& copy) const {
  const std::int64_t first = begin_of(begin), last = end == blocks() ? elements_ : begin_of(end);
  for (const KeptArray& array : kept_) {
    const std::int64_t from = first / array.granule * array.item_bytes;
    copy(array, from, at(ceil_div(last, array.granule) * array.item_bytes - from));
  }
}

}  // namespace ztrain::kernels
