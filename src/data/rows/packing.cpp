#include "data/rows/packing.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "data/tokens/token_source.hpp"

namespace ztrain::data {
namespace {

/// Most pieces: packing them takes 40 bytes each, about 10 GiB on every rank.
constexpr std::int64_t largest_packing = std::int64_t{1} << 28;

/// A set of numbers below a bound that finds the smallest member from a number on. Bits in words are the
/// members; above them, level by level, is a bit for each word that is not empty.
class OrderedSet {
 public:
  explicit OrderedSet(std::int64_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(static_cast<std::size_t>(bound));
    } while (bound > 1);
  }

  void insert(std::int64_t value) {
    for (auto& level : levels_) {
      level[word(value)] |= bit(value);
      value /= 64;
    }
  }
  void erase(std::int64_t value) {
    for (auto& level : levels_) {
      if ((level[word(value)] &= ~bit(value)) != 0) return;
      value /= 64;
    }
  }
  /// Returns the smallest member that is not below value, or -1.
  std::int64_t from(std::int64_t value) const {
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      if (word(value) >= levels_[l].size()) return -1;
      const std::uint64_t rest = levels_[l][word(value)] & ~(bit(value) - 1);
      if (rest != 0) return descend(l, value / 64 * 64 + std::countr_zero(rest));
      value = value / 64 + 1;
    }
    return -1;
  }

 private:
  static std::size_t word(std::int64_t value) { return static_cast<std::size_t>(value / 64); }
  static std::uint64_t bit(std::int64_t value) { return std::uint64_t{1} << (value % 64); }
  std::int64_t descend(std::size_t level, std::int64_t value) const {
    while (level-- > 0)
      value = value * 64 + std::countr_zero(levels_[level][static_cast<std::size_t>(value)]);
    return value;
  }

  std::vector<std::vector<std::uint64_t>> levels_;
};

/// Rows with space left, by that space. Of equal ones, the row that was filled last comes first.
class OpenRows {
 public:
  OpenRows(const PackingOptions& options, std::size_t most_rows)
      : options_(options),
        spaces_(options.sequence + 1),
        top_(static_cast<std::size_t>(options.sequence) + 1, -1) {
    // Memory that is never written takes nothing, and growing would copy.
    below_.reserve(most_rows);
    documents_.reserve(most_rows);
  }

  /// Returns the row into which a piece goes.
  std::int64_t place(std::int64_t length) {
    std::int64_t space = spaces_.from(length), row;
    if (space < 0) {
      space = options_.sequence;
      row = static_cast<std::int64_t>(below_.size());
      below_.push_back(-1);
      documents_.push_back(0);
    } else {
      row = pop(space);
    }
    const auto r = static_cast<std::size_t>(row);
    ++documents_[r];
    if (space > length && documents_[r] != options_.max_documents) push(space - length, row);
    return row;
  }

 private:
  std::int64_t pop(std::int64_t space) {
    std::int64_t& top = top_[static_cast<std::size_t>(space)];
    const std::int64_t row = top;
    top = below_[static_cast<std::size_t>(row)];
    if (top < 0) spaces_.erase(space);
    return row;
  }
  void push(std::int64_t space, std::int64_t row) {
    std::int64_t& top = top_[static_cast<std::size_t>(space)];
    below_[static_cast<std::size_t>(row)] = top;
    top = row;
    spaces_.insert(space);
  }

  PackingOptions options_;
  OrderedSet spaces_;
  std::vector<std::int64_t> top_;        ///< [space]: first row of a list, or -1
  std::vector<std::int64_t> below_;      ///< [row]: next row of its list, or -1
  std::vector<std::int64_t> documents_;  ///< [row]: documents in it
};

/// Sorts pieces from the longest to the shortest, by counting; equally long ones keep their order.
std::vector<Piece> longest_first(const std::vector<Piece>& pieces, std::int64_t longest) {
  const auto place = [&](const Piece& p) { return static_cast<std::size_t>(longest - p.length); };
  std::vector<std::int64_t> next(static_cast<std::size_t>(longest) + 2, 0);
  for (const Piece& p : pieces) ++next[place(p) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Piece> sorted(pieces.size());
  for (const Piece& p : pieces) sorted[static_cast<std::size_t>(next[place(p)]++)] = p;
  return sorted;
}

/// Returns the row of each piece, in the order in which pieces are placed.
std::vector<std::int64_t> place_all(const std::vector<Piece>& pieces, const PackingOptions& options) {
  OpenRows open(options, pieces.size());
  std::vector<std::int64_t> rows;
  rows.reserve(pieces.size());
  for (const Piece& p : pieces) rows.push_back(open.place(p.length));
  return rows;
}

class Cutter {
 public:
  Cutter(const TokenSource& source, const PackingOptions& options, const std::string& key,
         std::int64_t most_pieces)
      : options_(options), mask_(source, key) {
    cut_.pieces.reserve(static_cast<std::size_t>(most_pieces));
  }

  void document(std::int64_t begin, std::int64_t end) {
    const std::int64_t row = options_.sequence;
    const bool too_long = end - begin > row;
    ++cut_.counts.documents;
    if (end - begin == 1) ++cut_.counts.single;
    if (too_long && options_.long_documents == LongDocuments::drop) {
      ++cut_.counts.dropped;
      cut_.counts.cut_off += end - begin;
      return;
    }
    const std::size_t before = cut_.pieces.size();
    piece(begin, std::min(row, end - begin), end);
    if (too_long && options_.long_documents == LongDocuments::split) {
      for (std::int64_t at = begin + row; at < end; at += row) piece(at, std::min(row, end - at), end);
      ++cut_.counts.split;
    } else if (too_long) {
      ++cut_.counts.truncated;
      cut_.counts.cut_off += end - begin - row;
    }
    if (cut_.pieces.size() == before) ++cut_.counts.untrained;
  }

  CutDocuments finish(std::uint64_t offsets) {
    cut_.content = hash_text(fmt::format("{} {}", offsets, mask_.finish()));
    return std::move(cut_);
  }

 private:
  /// Adds tokens [begin, begin + length) of the document that ends at `end`.
  void piece(std::int64_t begin, std::int64_t length, std::int64_t end) {
    const std::int64_t trained = mask_.count(begin + 1, std::min(begin + length + 1, end));
    if (trained == 0) return;
    Piece& p = cut_.pieces.emplace_back();
    p.begin = begin;
    p.length = static_cast<std::int32_t>(length);
    p.trained = static_cast<std::uint32_t>(trained) & 0x7fffffffu;
    p.continues = begin + length < end ? 1 : 0;
  }

  PackingOptions options_;
  MaskStream mask_;
  CutDocuments cut_;
};

/// Returns the number of pieces that documents can become, if all of them are trained on.
std::int64_t most_pieces(const std::vector<std::int64_t>& offsets, const PackingOptions& options) {
  if (options.long_documents != LongDocuments::split) return std::ssize(offsets) - 1;
  std::int64_t pieces = 0;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d)
    pieces += ceil_div(offsets[d + 1] - offsets[d], options.sequence);
  return pieces;
}

}  // namespace

DocumentCounts& DocumentCounts::operator+=(const DocumentCounts& other) {
  documents += other.documents;
  truncated += other.truncated, split += other.split, dropped += other.dropped;
  untrained += other.untrained, single += other.single, cut_off += other.cut_off;
  return *this;
}

CutDocuments cut_documents(const TokenSource& source, const PackingOptions& options, const std::string& key) {
  const std::vector<std::int64_t> offsets = source.document_offsets();
  const std::int64_t pieces = most_pieces(offsets, options);
  REQUIRE(pieces <= largest_packing,
          "{}: {}: its {} tokens in {} documents would be {} pieces of rows of data.sequence = {}, more than "
          "the {} that one source may be packed from: give a longer data.sequence, data.packing = "
          "\"windows\", or files of their own in data.train with data.weights",
          key, files_of(source), source.size(), offsets.size() - 1, pieces, options.sequence,
          largest_packing);
  Cutter cutter(source, options, key, pieces);
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) cutter.document(offsets[d], offsets[d + 1]);
  return cutter.finish(hash_bytes(offsets.data(), offsets.size() * sizeof(std::int64_t)));
}

PackedRows pack(std::vector<Piece> pieces, const PackingOptions& options) {
  pieces = longest_first(std::exchange(pieces, {}), options.sequence);
  const std::vector<std::int64_t> row_of = place_all(pieces, options);
  PackedRows packed;
  packed.pieces.resize(pieces.size());
  // first[r + 1] moves from the begin of row r to its end, which is the begin of row r + 1.
  auto& first = packed.first;
  const std::int64_t rows = row_of.empty() ? 0 : *std::max_element(row_of.begin(), row_of.end()) + 1;
  first.assign(static_cast<std::size_t>(rows) + 2, 0);
  for (const std::int64_t row : row_of) ++first[static_cast<std::size_t>(row) + 2];
  std::partial_sum(first.begin(), first.end(), first.begin());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    packed.pieces[static_cast<std::size_t>(first[static_cast<std::size_t>(row_of[i]) + 1]++)] = pieces[i];
  first.pop_back();
  return packed;
}

}  // namespace ztrain::data
