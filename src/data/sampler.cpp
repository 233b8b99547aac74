#include "data/sampler.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace ztrain::data {

Sampler::Sampler(std::vector<std::shared_ptr<const RowSource>> sources, const std::vector<double>& weights,
                 std::int64_t seed, const Course& course)
    : sources_(std::move(sources)),
      mixture_(weights.empty() ? std::vector<std::int64_t>{1} : shares_of(weights), seed),
      from_(course.from) {
  const std::uint64_t key = hash_text("data order", static_cast<std::uint64_t>(seed));
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    SourceCourse source;
    source.parts = {{{}, sources_[s]->rows(), 0, 0}};
    source.sources = static_cast<std::int64_t>(sources_.size());
    source.place = static_cast<std::int64_t>(s);
    if (!course.sources.empty()) source = course.sources.at(s);
    ASSERT(source.rows() == sources_[s]->rows(), "source '{}' has {} rows, and its course {}", source.name,
           sources_[s]->rows(), source.rows());
    drawn_.push_back(source.drawn);
    orders_.emplace_back(source, key);
  }
}

std::int64_t Sampler::rows_per_epoch() const {
  std::int64_t rows = 0;
  for (const auto& source : sources_) rows += source->rows();
  return rows;
}

Sampler::Draw Sampler::draw(std::int64_t index) const {
  const auto [source, number] = mixture_(index - from_);
  return {source, orders_[source](drawn_[source] + number)};
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
