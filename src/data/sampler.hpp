#pragma once
// The order in which a run sees its rows. Everything here is a pure function of the sample's number: the data
// cursor of a run is one integer, the number of samples consumed, and does not depend on ranks.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/mixture.hpp"
#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Samples are drawn from the sources by a mixture. Each source goes through its rows in a permutation of its
/// own, another one in each of its epochs, keyed by seed, source and epoch.
class Sampler {
 public:
  /// weights: one per source, see shares_of; empty for a single source. All sources have the same sequence().
  Sampler(std::vector<std::shared_ptr<const RowSource>> sources, const std::vector<double>& weights,
          std::int64_t seed);

  std::int64_t sequence() const { return sources_.front()->sequence(); }
  /// Over all sources.
  std::int64_t rows_per_epoch() const;

  struct Draw {
    std::size_t source = 0;
    std::int64_t row = 0;
  };
  /// The row that is sample number `index` >= 0 of the run.
  Draw draw(std::int64_t index) const;

  /// Samples [first, first + micro) of the run into out. Errors as RowSource::fill's.
  void fill(std::int64_t first, std::int64_t micro, const MicroBatch& out) const;
  /// Asks the system for what filling them reads; returns at once. A hint.
  void read_ahead(std::int64_t first, std::int64_t micro) const;

 private:
  std::vector<std::shared_ptr<const RowSource>> sources_;
  Mixture mixture_;
  std::uint64_t key_;
};

}  // namespace ztrain::data
