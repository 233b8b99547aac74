#include "data/rows/batch_part.hpp"

#include <algorithm>

namespace ztrain::data {

BatchPart::BatchPart(std::int64_t tokens, const TokenOrder& order, int index) {
  const std::int64_t all = order.padded(tokens);
  if (order.ranks() == 1 && all == tokens) return;
  runs_ = order.part(all, order.ranks(), index);
  for (auto* array : {&tokens_, &targets_, &positions_, &document_start_})
    array->resize(static_cast<std::size_t>(all));
  weights_.resize(static_cast<std::size_t>(all));
  padding_ = all - tokens;
  if (all > tokens) fill_padding(padding_, row_of(whole(), 1, tokens));
  std::fill(positions_.end() - padding_, positions_.end(), 0);
}

void BatchPart::copy_into_padding() {
  std::fill(tokens_.end() - padding_, tokens_.end(), tokens_.front());
  // The padding adds nothing to the last slot of the micro-batch.
  if (!sequences_.empty() && padding_ > 0)
    std::fill(sequences_.end() - padding_, sequences_.end(), *(sequences_.end() - padding_ - 1));
}

/// Makes the arrays that only some losses read, once.
void BatchPart::take_room(const MicroBatch& out) {
  if (out.places != nullptr) places_.resize(tokens_.size(), -1);
  if (out.sequences == nullptr || !sequences_.empty()) return;
  sequences_.resize(tokens_.size());
  reference_.resize(tokens_.size());
}

MicroBatch BatchPart::whole() {
  return {tokens_.data(),
          targets_.data(),
          weights_.data(),
          positions_.data(),
          document_start_.data(),
          sequences_.empty() ? nullptr : sequences_.data(),
          reference_.empty() ? nullptr : reference_.data(),
          places_.empty() ? nullptr : places_.data()};
}

void BatchPart::take(const MicroBatch& out) const {
  std::int64_t to = 0;
  for (const auto& [token, count] : runs_) {
    std::copy_n(tokens_.data() + token, count, out.tokens + to);
    std::copy_n(targets_.data() + token, count, out.targets + to);
    std::copy_n(weights_.data() + token, count, out.weights + to);
    std::copy_n(positions_.data() + token, count, out.positions + to);
    std::copy_n(document_start_.data() + token, count, out.document_start + to);
    if (out.sequences != nullptr) {
      std::copy_n(sequences_.data() + token, count, out.sequences + to);
      std::copy_n(reference_.data() + token, count, out.reference + to);
    }
    if (out.places != nullptr) std::copy_n(places_.data() + token, count, out.places + to);
    to += count;
  }
}

}  // namespace ztrain::data
