#pragma once
// Gives the order in which a run draws the rows of one source: a pure function of how many rows of it were
// drawn before, also if files were added while the run was under way.
//
// In each epoch all rows come in a new keyed permutation. Files that are added during an epoch, or behind a
// complete one, make that epoch longer: their rows and those that the epoch has not seen yet come in a mixed
// order, and none that it has seen comes again. Later epochs go over all rows.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::data {

/// Files that joined a source together.
struct FilePart {
  std::vector<std::string> files;  ///< names without folders
  std::int64_t rows = 0;
  std::uint64_t identity = 0;  ///< hash of their content, and of how rows are made of it
  std::int64_t from = 0;       ///< rows of the source that had been drawn when they joined
};

/// How a run draws from one source.
struct SourceCourse {
  std::string name;  ///< that of Entry
  std::vector<FilePart> parts;
  std::int64_t drawn = 0;  ///< rows drawn before Course::from
  /// Epoch e has stream e * sources + place of permutations: what the run had of sources when it began to
  /// draw from this one.
  std::int64_t sources = 1, place = 0;

  std::int64_t rows() const;
};

class RowOrder {
 public:
  /// `key` is that of the run's permutations. The course has at least one part, and each part has rows.
  RowOrder(const SourceCourse& course, std::uint64_t key);

  /// Returns the row that is drawn after `number` others; rows of a part follow those of the parts before.
  std::int64_t operator()(std::int64_t number) const;

  struct Position {
    std::int64_t epoch = 0;  ///< complete epochs before the one under way
    std::int64_t seen = 0;   ///< rows that it has seen: all of them directly behind its last one
  };
  /// Returns the position in the epochs once `number` rows are drawn.
  Position position(std::int64_t number) const;

 private:
  /// All rows from the time on at which a part had joined.
  struct Level {
    std::int64_t from = 0, rows = 0;
    Position joined;  ///< position at which the part joined
    std::int64_t rest() const { return rows - joined.seen; }
  };

  std::int64_t row(std::int64_t number, std::size_t level) const;
  Position position(std::int64_t number, std::size_t level) const;
  std::int64_t permuted(std::int64_t index, std::int64_t rows, std::int64_t epoch, std::uint64_t key) const;

  std::vector<Level> levels_;
  std::uint64_t key_;
  std::int64_t sources_, place_;
};

}  // namespace ztrain::data
