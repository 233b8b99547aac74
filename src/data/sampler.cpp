#include "data/sampler.hpp"

#include <utility>

#include "base/hash.hpp"
#include "data/rows/permutation.hpp"

namespace ztrain::data {

Sampler::Sampler(std::vector<std::shared_ptr<const RowSource>> sources, const std::vector<double>& weights,
                 std::int64_t seed)
    : sources_(std::move(sources)),
      mixture_(weights.empty() ? std::vector<std::int64_t>{1} : shares_of(weights), seed),
      key_(hash_text("data order", static_cast<std::uint64_t>(seed))) {}

std::int64_t Sampler::rows_per_epoch() const {
  std::int64_t rows = 0;
  for (const auto& source : sources_) rows += source->rows();
  return rows;
}

Sampler::Draw Sampler::draw(std::int64_t index) const {
  const auto [source, number] = mixture_(index);
  const std::int64_t rows = sources_[source]->rows();
  const auto epoch = static_cast<std::uint64_t>(number / rows);
  const Permutation order(rows, key_, epoch * mixture_.sources() + source);
  return {source, order(number % rows)};
}

void Sampler::fill(std::int64_t first, std::int64_t micro, const MicroBatch& out) const {
  for (std::int64_t r = 0; r < micro; ++r) {
    const auto [source, row] = draw(first + r);
    sources_[source]->fill(row, row_of(out, r, sequence()));
  }
}

void Sampler::read_ahead(std::int64_t first, std::int64_t micro) const {
  for (std::int64_t r = 0; r < micro; ++r) {
    const std::int64_t number = first + r;
    const Draw drawn = draw(number);
    sources_[drawn.source]->read_ahead(drawn.row);
  }
}

}  // namespace ztrain::data
