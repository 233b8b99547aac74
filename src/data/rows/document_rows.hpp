#pragma once
// Rows of whole documents, packed once (packing.hpp). Attention and positions start anew with each document.
// The rest of a row is padding, a document of its own with token 0 and weight 0.

#include <optional>
#include <span>

#include "data/rows/packing.hpp"
#include "data/rows/permutation.hpp"
#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Rows of a packing: those at [begin, end) of a permutation of all rows, or of their own order.
struct RowRange {
  std::int64_t begin = 0, end = 0;
  std::optional<Permutation> order{};
};

class DocumentRows : public RowSource {
 public:
  DocumentRows(CheckedTokens tokens, std::shared_ptr<const PackedRows> packed, std::int64_t sequence,
               RowRange range);

  std::int64_t sequence() const override { return sequence_; }
  std::int64_t rows() const override { return range_.end - range_.begin; }
  void fill(std::int64_t row, const Row& out) const override;
  void read_ahead(std::int64_t row) const override {
    for (const Piece& piece : pieces_at(range_.begin + row))
      tokens_.source->read_ahead(piece.begin, piece.length + piece.continues);
  }
  RowCounts counts() const override { return counts_; }

 private:
  std::span<const Piece> pieces_at(std::int64_t at) const;  ///< pieces of row `at` of range_.order
  void count(const Piece& piece, int sign);
  void count(std::int64_t begin, std::int64_t end, int sign);
  void fill_piece(const Piece& piece, std::int64_t at, const Row& out) const;

  CheckedTokens tokens_;
  std::shared_ptr<const PackedRows> packed_;
  std::int64_t sequence_;
  RowRange range_;
  RowCounts counts_;
};

}  // namespace ztrain::data
