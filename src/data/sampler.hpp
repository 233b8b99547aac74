#pragma once
// Gives the order in which a run sees its rows. Everything here is a pure function of the sample's number.
// The data cursor of a run is therefore one integer, the number of samples consumed, and does not depend on
// ranks.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/course.hpp"
#include "data/mixture.hpp"
#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Draws samples from the sources by a mixture. In each epoch a source goes through its rows in a new
/// permutation, keyed by seed, source and epoch (row_order.hpp).
class Sampler {
 public:
  /// weights has one number per source, see shares_of; it is empty for a single source. All sources have the
  /// same sequence(). The course has the rows of the sources; without one it is that of a new run.
  Sampler(std::vector<std::shared_ptr<const RowSource>> sources, const std::vector<double>& weights,
          std::int64_t seed, const Course& course = {});

  std::int64_t sequence() const { return sources_.front()->sequence(); }
  /// Returns the rows of all sources.
  std::int64_t rows_per_epoch() const;

  struct Draw {
    std::size_t source = 0;
    std::int64_t row = 0;
  };
  /// Returns the row that is sample number `index` >= 0 of the run, and not below Course::from.
  Draw draw(std::int64_t index) const;

  /// Fills out with samples [first, first + micro) of the run. Errors are those of RowSource::fill.
  void fill(std::int64_t first, std::int64_t micro, const MicroBatch& out) const;
  /// Asks the system to read ahead for filling them; returns at once. A hint.
  void read_ahead(std::int64_t first, std::int64_t micro) const;

 private:
  std::vector<std::shared_ptr<const RowSource>> sources_;
  Mixture mixture_;
  std::int64_t from_;                ///< Course::from
  std::vector<std::int64_t> drawn_;  ///< of each source, before it
  std::vector<RowOrder> orders_;
};

}  // namespace ztrain::data
