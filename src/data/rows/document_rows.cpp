#include "data/rows/document_rows.hpp"

#include <algorithm>
#include <utility>

namespace ztrain::data {

DocumentRows::DocumentRows(CheckedTokens tokens, std::shared_ptr<const PackedRows> packed,
                           std::int64_t sequence, RowRange range)
    : tokens_(std::move(tokens)), packed_(std::move(packed)), sequence_(sequence), range_(range) {
  const std::int64_t all = packed_->rows();
  counts_.rows = rows();
  if (2 * rows() <= all) {
    count(range_.begin, range_.end, 1);
    return;
  }
  // A range in a permutation has rows from all over memory. Counts the smaller part, which is held out, and
  // subtracts it from the whole.
  for (const Piece& piece : packed_->pieces) count(piece, 1);
  count(0, range_.begin, -1);
  count(range_.end, all, -1);
}

void DocumentRows::count(const Piece& piece, int sign) {
  counts_.documents += sign;
  counts_.tokens += sign * std::int64_t{piece.length};
  counts_.trained += sign * std::int64_t{piece.trained};
}

void DocumentRows::count(std::int64_t begin, std::int64_t end, int sign) {
  for (std::int64_t at = begin; at < end; ++at)
    for (const Piece& piece : pieces_at(at)) count(piece, sign);
}

std::span<const Piece> DocumentRows::pieces_at(std::int64_t at) const {
  const auto r = static_cast<std::size_t>(range_.order ? (*range_.order)(at) : at);
  const Piece* all = packed_->pieces.data();
  return {all + packed_->first[r], all + packed_->first[r + 1]};
}

void DocumentRows::fill(std::int64_t row, const Row& out) const {
  std::int64_t at = 0;
  if (out.at.places != nullptr) std::fill_n(out.at.places, sequence_, -1);
  for (const Piece& piece : pieces_at(range_.begin + row)) {
    fill_piece(piece, at, out);
    at += piece.length;
  }
  const std::int64_t left = sequence_ - at;
  std::fill_n(out.at.tokens + at, left, 0);
  std::fill_n(out.at.targets + at, left, 0);
  std::fill_n(out.at.weights + at, left, 0.0f);
  fill_places(at, left, out);
}

void DocumentRows::fill_piece(const Piece& piece, std::int64_t at, const Row& out) const {
  const std::int64_t n = piece.length, targets = n - 1 + piece.continues;
  std::int32_t* const tokens = out.at.tokens + at;
  tokens_.read(piece.begin, n, tokens);
  std::copy(tokens + 1, tokens + n, out.at.targets + at);
  tokens_.read_weights(piece.begin + 1, targets, out.at.weights + at);
  tokens_.tell_places(piece.begin + 1, targets, at, out);
  if (piece.continues != 0) {
    tokens_.read(piece.begin + n, 1, out.at.targets + at + n - 1);
  } else {
    out.at.targets[at + n - 1] = 0;
    out.at.weights[at + n - 1] = 0;
  }
  fill_places(at, n, out);
}

}  // namespace ztrain::data
