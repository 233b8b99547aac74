#include "data/rows/pair_rows.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/preference_loss.hpp"

namespace ztrain::data {
namespace {

class PairCutter {
 public:
  PairCutter(const TokenSource& source, const PackingOptions& options, const std::string& key)
      : options_(options), mask_(source, key) {}

  void pair(std::int64_t begin, std::int64_t middle, std::int64_t end, bool desirable) {
    const std::int64_t row = options_.sequence, half = row / 2;
    packed_.counts.documents += 2;
    AnswerPair pair{{begin, middle - begin}, {middle, end - middle}, desirable};
    if (end - begin > row && options_.long_documents == LongDocuments::drop) {
      packed_.counts.dropped += 2;
      packed_.counts.cut_off += end - begin;
      return;
    }
    const std::int64_t room = std::max(half, row - pair.rejected.length);
    cut(pair.chosen, room);
    cut(pair.rejected, row - pair.chosen.length);
    const std::int64_t chosen = trained(pair.chosen), rejected = trained(pair.rejected);
    pair.trained = chosen + rejected;
    if (chosen > 0 && rejected > 0)
      packed_.pairs.push_back(pair);
    else
      packed_.counts.untrained += 2;
  }

  PackedPairs finish(std::uint64_t offsets) {
    packed_.content = hash_text(fmt::format("{} {}", offsets, mask_.finish()));
    return std::move(packed_);
  }

 private:
  void cut(Answer& answer, std::int64_t room) {
    if (answer.length <= room) return;
    ++packed_.counts.truncated;
    packed_.counts.cut_off += answer.length - room;
    answer.length = room;
  }
  std::int64_t trained(const Answer& answer) {
    return mask_.count(answer.begin + 1, answer.begin + std::max<std::int64_t>(answer.length, 1));
  }

  PackingOptions options_;
  MaskStream mask_;
  PackedPairs packed_;
};

/// Packs pairs as documents whose `begin` is the number of the pair.
void place_pairs(PackedPairs& packed, const PackingOptions& options) {
  std::vector<Piece> pieces;
  for (std::int64_t p = 0; p < std::ssize(packed.pairs); ++p) {
    const AnswerPair& pair = packed.pairs[static_cast<std::size_t>(p)];
    Piece piece{p, static_cast<std::int32_t>(pair.chosen.length + pair.rejected.length)};
    piece.trained = 1;
    pieces.push_back(piece);
  }
  PackedRows rows =
      pack(std::move(pieces), {options.sequence, options.long_documents, options.max_documents / 2});
  std::vector<AnswerPair> placed;
  placed.reserve(packed.pairs.size());
  for (const Piece& piece : rows.pieces)
    placed.push_back(packed.pairs[static_cast<std::size_t>(piece.begin)]);
  packed.pairs = std::move(placed);
  packed.first = std::move(rows.first);
}

}  // namespace

PackedPairs pack_pairs(const TokenSource& source, const PackingOptions& options, const std::string& key) {
  const std::vector<std::int64_t> offsets = source.document_offsets();
  const std::vector<std::uint8_t> labels = source.labels();
  PairCutter cutter(source, options, key);
  for (std::size_t d = 0; d + 2 < offsets.size(); d += 2)
    cutter.pair(offsets[d], offsets[d + 1], offsets[d + 2], labels.empty() || labels[d / 2] != 0);
  std::uint64_t content = hash_bytes(offsets.data(), offsets.size() * sizeof(std::int64_t));
  if (!labels.empty()) content = hash_bytes(labels.data(), labels.size(), content);
  PackedPairs packed = cutter.finish(content);
  packed.labelled = !labels.empty();
  REQUIRE(
      !packed.pairs.empty(),
      "{}: {}: none of its {} pairs has a token to predict (loss_mask) in both answers within data.sequence "
      "({})",
      key, files_of(source), offsets.size() / 2, options.sequence);
  place_pairs(packed, options);
  return packed;
}

PairRows::PairRows(CheckedTokens tokens, std::shared_ptr<const PackedPairs> packed,
                   std::shared_ptr<References> references, std::int64_t sequence, RowRange range)
    : tokens_(std::move(tokens)),
      packed_(std::move(packed)),
      references_(std::move(references)),
      sequence_(sequence),
      range_(range) {
  counts_.rows = rows();
  for (std::int64_t row = 0; row < rows(); ++row) {
    const auto [begin, end] = pairs_of(row);
    counts_.documents += 2 * (end - begin);
    for (std::int64_t p = begin; p < end; ++p) {
      const AnswerPair& pair = packed_->pairs[static_cast<std::size_t>(p)];
      counts_.tokens += pair.chosen.length + pair.rejected.length;
      counts_.trained += pair.trained;
    }
  }
}

std::pair<std::int64_t, std::int64_t> PairRows::pairs_of(std::int64_t row) const {
  const std::int64_t at = range_.begin + row;
  const auto r = static_cast<std::size_t>(range_.order ? (*range_.order)(at) : at);
  return {packed_->first[r], packed_->first[r + 1]};
}

std::int64_t PairRows::slot_of(std::int64_t first, std::int64_t p) const {
  if (!packed_->labelled) return 2 * (p - first);
  return 4 * (p - first) + (packed_->pairs[static_cast<std::size_t>(p)].desirable ? 0 : 2);
}

void PairRows::read_ahead(std::int64_t row) const {
  const auto [begin, end] = pairs_of(row);
  for (std::int64_t p = begin; p < end; ++p)
    for (const Answer& answer : {packed_->pairs[static_cast<std::size_t>(p)].chosen,
                                 packed_->pairs[static_cast<std::size_t>(p)].rejected})
      tokens_.source->read_ahead(answer.begin, answer.length);
}

void PairRows::fill(std::int64_t row, const Row& out) const {
  const auto [begin, end] = pairs_of(row);
  fill_padding(sequence_, out);
  const std::int64_t first_slot = out.index / sequence_ * sequence_slots(sequence_);
  Place place{0, first_slot};
  const auto next = [&](const Answer& answer, std::int64_t number) {
    if (!references_->empty()) place.reference = (*references_)[static_cast<std::size_t>(number)];
    fill_answer(answer, place, out);
    place.at += answer.length;
    ++place.slot;
  };
  for (std::int64_t p = begin; p < end; ++p) {
    place.slot = first_slot + slot_of(begin, p);
    next(packed_->pairs[static_cast<std::size_t>(p)].chosen, 2 * p);
    next(packed_->pairs[static_cast<std::size_t>(p)].rejected, 2 * p + 1);
  }
  // The rest of the row is a document of its own, and adds nothing to the slot in which it is.
  fill_places(place.at, sequence_ - place.at, out);
  if (out.at.sequences != nullptr)
    std::fill(out.at.sequences + place.at, out.at.sequences + sequence_,
              static_cast<std::int32_t>(place.slot - 1));
}

void PairRows::fill_answer(const Answer& answer, const Place& place, const Row& out) const {
  const std::int64_t at = place.at, n = answer.length;
  std::int32_t* const tokens = out.at.tokens + at;
  tokens_.read(answer.begin, n, tokens);
  std::copy(tokens + 1, tokens + n, out.at.targets + at);
  tokens_.read_weights(answer.begin + 1, n - 1, out.at.weights + at);
  out.at.targets[at + n - 1] = 0;
  if (packed_->weighed == Weighed::last) std::fill_n(out.at.weights + at, n - 1, 0.0F);
  out.at.weights[at + n - 1] = packed_->weighed == Weighed::last ? 1 : 0;
  fill_places(at, n, out);
  if (out.at.sequences != nullptr)
    std::fill_n(out.at.sequences + at, n, static_cast<std::int32_t>(place.slot));
  if (out.at.reference != nullptr) out.at.reference[at] = place.reference;
}

}  // namespace ztrain::data
