#pragma once
// Rows of pairs of answers. A pair is packed as one piece: its chosen answer, then its rejected one, which
// are two documents to the model. So the two are in the same row on every mesh.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "data/rows/document_rows.hpp"

namespace ztrain::data {

/// Tokens [begin, begin + length) of a source.
struct Answer {
  std::int64_t begin = 0, length = 0;
};

/// Tokens of an answer that have a weight: those that loss_mask marks, or the last one alone.
enum class Weighed : std::uint8_t { marked, last };

/// The chosen and the rejected answer; or one with a label, and the one beside it.
struct AnswerPair {
  Answer chosen, rejected;
  bool desirable = true;     ///< the label
  std::int64_t trained = 0;  ///< number of the targets of both that are to be predicted
};

/// Packed pairs. Row r holds pairs [first[r], first[r + 1]).
struct PackedPairs {
  std::vector<AnswerPair> pairs;
  std::vector<std::int64_t> first{0};
  DocumentCounts counts;      ///< of documents, two for each pair
  std::uint64_t content = 0;  ///< hash of document offsets and mask
  bool labelled = false;
  Weighed weighed = Weighed::marked;
  std::int64_t rows() const { return std::ssize(first) - 1; }
};

/// Cuts and packs the pairs of a source, or its answers with labels. Of a pair that is longer than a row,
/// each answer is cut to half a row; an answer that is shorter leaves its room to the other one. A pair
/// without a token to predict in one of its answers is left out. options.max_documents counts answers. Throws
/// as cut_documents.
PackedPairs pack_pairs(const TokenSource& source, const PackingOptions& options, const std::string& key);

/// Log-probabilities of all answers under the reference model: of pair p of PackedPairs at 2 p and 2 p + 1.
/// Empty until they are known. Several sets of rows of one packing share them.
using References = std::vector<double>;

class PairRows : public RowSource {
 public:
  PairRows(CheckedTokens tokens, std::shared_ptr<const PackedPairs> packed,
           std::shared_ptr<References> references, std::int64_t sequence, RowRange range);

  std::int64_t sequence() const override { return sequence_; }
  std::int64_t rows() const override { return range_.end - range_.begin; }
  /// Writes slots and references too, if `out` has room for them. A row has sequence_slots() slots.
  void fill(std::int64_t row, const Row& out) const override;
  void read_ahead(std::int64_t row) const override;
  RowCounts counts() const override { return counts_; }

  /// Returns the numbers [first, second) of the pairs of a row.
  std::pair<std::int64_t, std::int64_t> pairs_of(std::int64_t row) const;
  /// Returns the first of the two slots of pair p, counted from the first slot of its row, whose first pair
  /// is `first`.
  std::int64_t slot_of(std::int64_t first, std::int64_t p) const;
  References& references() const { return *references_; }
  std::int64_t pairs() const { return std::ssize(packed_->pairs); }

 private:
  /// An answer's place in a row.
  struct Place {
    std::int64_t at = 0, slot = 0;
    double reference = 0;
  };
  void fill_answer(const Answer& answer, const Place& place, const Row& out) const;

  CheckedTokens tokens_;
  std::shared_ptr<const PackedPairs> packed_;
  std::shared_ptr<References> references_;
  std::int64_t sequence_;
  RowRange range_;
  RowCounts counts_;
};

}  // namespace ztrain::data
