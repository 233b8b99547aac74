#pragma once
// Rows of several sources, one after the other: those of files that joined a source while a run was under
// way. Each part has rows of its own, so that the rows of files that were there before stay what they were.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "data/rows/row_source.hpp"

namespace ztrain::data {

class JoinedRows : public RowSource {
 public:
  /// All parts have the same sequence().
  explicit JoinedRows(std::vector<std::shared_ptr<const RowSource>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      const RowCounts own = part->counts();
      counts_.rows += own.rows;
      counts_.documents += own.documents;
      counts_.tokens += own.tokens;
      counts_.trained += own.trained;
      ends_.push_back(counts_.rows);
    }
  }

  std::int64_t sequence() const override { return parts_.front()->sequence(); }
  std::int64_t rows() const override { return counts_.rows; }
  void fill(std::int64_t row, const Row& out) const override {
    const auto [part, own] = find(row);
    part->fill(own, out);
  }
  void read_ahead(std::int64_t row) const override {
    const auto [part, own] = find(row);
    part->read_ahead(own);
  }
  RowCounts counts() const override { return counts_; }

 private:
  std::pair<const RowSource*, std::int64_t> find(std::int64_t row) const {
    const auto part = static_cast<std::size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
    return {parts_[part].get(), part == 0 ? row : row - ends_[part - 1]};
  }

  std::vector<std::shared_ptr<const RowSource>> parts_;
  std::vector<std::int64_t> ends_;  ///< rows up to the end of each part
  RowCounts counts_;
};

}  // namespace ztrain::data
