#pragma once
// The order in which a run draws its data, and how it goes on if files, weights or rows change while the run
// is under way (checkpoint.override).

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "data/rows/row_order.hpp"
#include "data/rows/row_sets.hpp"

namespace ztrain::data {

/// Says which row each sample of a run is. Saved in every checkpoint beside the cursor, the number of samples
/// consumed.
struct Course {
  std::int64_t from = 0;  ///< sample from which the mixture counts
  std::vector<SourceCourse> sources;

  /// Returns the rows of all sources.
  std::int64_t rows() const;
};

/// Names of the files of each source, by the parts in which they joined it.
using FileLists = std::vector<std::vector<std::vector<std::string>>>;

/// Returns the course of a new run over these training sets.
Course course_of(const std::vector<RowSet>& train);

/// Returns the files of the sets in the parts that a saved course has of them. Files that it does not have
/// are one more part. A source that lacks a file of the course is one part.
FileLists files_as_in(const Course& saved, const std::vector<RowSet>& train);

/// Returns the number of the saved source that goes on in this set: it has the same name, and its files have
/// the same content and the same rows. Returns -1 if there is none.
std::int64_t source_that_goes_on(const Course& saved, const RowSet& set);

/// Returns the course of a run that goes on behind `samples` samples with these sets and the deck `now`.
/// `before` is the deck of the saved course. No row that a source has drawn in its present epoch comes again
/// before the others have come, if the source goes on. If run.seed differs, none goes on.
Course next_course(const Course& saved, const config::Deck& before, std::int64_t samples,
                   const config::Deck& now, const std::vector<RowSet>& train);

}  // namespace ztrain::data
