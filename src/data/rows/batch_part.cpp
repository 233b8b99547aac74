#include "data/rows/batch_part.hpp"

#include <algorithm>

#include "base/shape.hpp"

namespace ztrain::data {

BatchPart::BatchPart(std::int64_t tokens, std::int64_t parts, std::int64_t index)
    : parts_(parts), begin_(index * ceil_div(tokens, parts)), count_(ceil_div(tokens, parts)) {
  if (parts == 1) return;
  const std::int64_t all = parts * count_;
  for (auto* array : {&tokens_, &targets_, &positions_, &document_start_})
    array->resize(static_cast<std::size_t>(all));
  weights_.resize(static_cast<std::size_t>(all));
  if (all > tokens) fill_padding(all - tokens, row_of(whole(), 1, tokens));
}

MicroBatch BatchPart::whole() {
  return {tokens_.data(), targets_.data(), weights_.data(), positions_.data(), document_start_.data()};
}

void BatchPart::take(const MicroBatch& out) const {
  std::copy_n(tokens_.data() + begin_, count_, out.tokens);
  std::copy_n(targets_.data() + begin_, count_, out.targets);
  std::copy_n(weights_.data() + begin_, count_, out.weights);
  std::copy_n(positions_.data() + begin_, count_, out.positions);
  std::copy_n(document_start_.data() + begin_, count_, out.document_start);
}

}  // namespace ztrain::data
