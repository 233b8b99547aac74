#include "data/rows/row_sets.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "data/rows/document_rows.hpp"
#include "data/rows/pair_rows.hpp"
#include "data/rows/window_rows.hpp"

namespace ztrain::data {
namespace {

CheckedTokens checked(const Entry& entry, std::int64_t vocab_size) {
  return {entry.tokens, entry.key, vocab_size, entry.first_place};
}

RowSet windows(const Entry& entry, const config::Data& data, std::int64_t begin, std::int64_t end,
               std::int64_t vocab_size, Tail tail = Tail::dropped) {
  const auto rows =
      std::make_shared<const WindowRows>(checked(entry, vocab_size), begin, end, data.sequence, tail);
  const std::uint64_t identity = hash_text(
      fmt::format("windows {} {} {} {}", entry.tokens->identity(), begin, end, rows->mask_identity()));
  return {entry.name, rows, {}, identity};
}

/// Throws Error unless a token is to be predicted. `where` names the windows, as the end of a sentence, and
/// what to do.
void require_trained(const Entry& entry, const RowSet& set, const std::string& where) {
  REQUIRE(set.rows->counts().trained > 0, "{}: {}: no token is to be predicted (loss_mask) in {}", entry.key,
          files_of(*entry.tokens), where);
}

RowSet all_windows(const Entry& entry, const config::Data& data, std::int64_t vocab_size) {
  RowSet set = windows(entry, data, 0, entry.tokens->size(), vocab_size);
  require_trained(entry, set, fmt::format("its {}", count_text(set.rows->rows(), "window")));
  return set;
}

SplitRows split_windows(const Entry& entry, const config::Data& data, double fraction,
                        std::int64_t vocab_size) {
  const std::int64_t window = data.sequence + 1, size = entry.tokens->size();
  if (fraction == 0) return {all_windows(entry, data, vocab_size), {}};
  const auto wanted = std::llround(fraction * static_cast<double>(size));
  const std::int64_t held = std::max<std::int64_t>(wanted, window);
  REQUIRE(size - held >= window,
          "{} has {} tokens; data.validation_fraction ({}) holds out {} of them, and the rest is fewer than "
          "one window of data.sequence + 1 = {}: give more data, data.validation, or a shorter data.sequence",
          entry.key, size, fraction, held, window);
  SplitRows split{windows(entry, data, 0, size - held, vocab_size),
                  windows(entry, data, size - held, size, vocab_size)};
  const auto trained = [](const RowSet& set) { return set.rows->counts().trained; };
  if (trained(split.train) + trained(split.held_out) == 0) all_windows(entry, data, vocab_size);
  const std::string by = fmt::format("data.validation_fraction ({})", fraction);
  const char* advice = "give data.validation, or another fraction";
  require_trained(entry, split.held_out,
                  fmt::format("the last {} of {} tokens, which {} holds out: {}", held, size, by, advice));
  require_trained(entry, split.train,
                  fmt::format("the first {} of {} tokens, which {} leaves to be trained on: {}", size - held,
                              size, by, advice));
  return split;
}

LongDocuments rule_for_long(const std::string& name) {
  if (name == "split") return LongDocuments::split;
  return name == "drop" ? LongDocuments::drop : LongDocuments::truncate;
}

PackedRows pack_all(const Entry& entry, CutDocuments& cut, const PackingOptions& options) {
  const DocumentCounts& n = cut.counts;
  const std::string files = files_of(*entry.tokens);
  REQUIRE(!cut.pieces.empty() || n.dropped < n.documents,
          "{}: {}: all {} documents are longer than data.sequence ({}), and data.long_documents = \"drop\"",
          entry.key, files, n.documents, options.sequence);
  const bool only_single = n.single + n.dropped == n.documents;
  const std::string dropped =
      n.dropped == 0 ? ""
                     : fmt::format(", and the others are longer than data.sequence ({})", options.sequence);
  REQUIRE(!only_single,
          "{}: {}: {} of its {} documents have one token, behind which nothing is to be predicted{}: write "
          "longer documents, or set data.packing = \"windows\", which joins them",
          entry.key, files, n.single, n.documents, dropped);
  REQUIRE(!cut.pieces.empty(),
          "{}: {}: no token behind the first of a document is to be predicted (loss_mask) in its {} "
          "documents, {} of them truncated to data.sequence ({})",
          entry.key, files, n.documents, n.truncated, options.sequence);
  return pack(std::move(cut.pieces), options);
}

/// An entry's documents in rows, from which sets are made.
class PackedEntry {
 public:
  PackedEntry(const Entry& entry, const config::Data& data, std::int64_t vocab_size)
      : entry_(entry),
        options_{data.sequence, rule_for_long(data.long_documents), data.max_documents},
        vocab_size_(vocab_size) {
    if (!entry.preference.empty()) {
      pack_answers(data);
      return;
    }
    CutDocuments cut = cut_documents(*entry.tokens, options_, entry.key);
    counts_ = cut.counts;
    packed_ = std::make_shared<const PackedRows>(pack_all(entry, cut, options_));
    content_ = hash_text(fmt::format("documents {} {} {} {} {}", entry.tokens->identity(), cut.content,
                                     options_.sequence, data.long_documents, options_.max_documents));
  }

  std::int64_t rows() const { return pairs_ ? pairs_->rows() : packed_->rows(); }
  bool truncates() const { return counts_.truncated > 0; }
  /// Describes what is in no row, for messages.
  std::string left_out() const {
    std::string text;
    if (truncates()) text += fmt::format(" ({} of {} truncated to it)", counts_.truncated, counts_.documents);
    if (counts_.untrained > 0)
      text += fmt::format(" (but {} of {} left out, of which no token is to be predicted)", counts_.untrained,
                          counts_.documents);
    return text;
  }

  /// Returns a mixed order, the same for every seed. Rows are packed from the longest documents to the
  /// shortest, so neither their beginning nor their end is like the rest.
  Permutation mixed() const { return {rows(), hash_text("held out"), 0}; }

  RowSet set(const RowRange& range) const {
    const std::uint64_t identity = hash_text(fmt::format("{} {}", range.begin, range.end), content_);
    if (pairs_) {
      const auto rows = std::make_shared<const PairRows>(checked(entry_, vocab_size_), pairs_, references_,
                                                         options_.sequence, range);
      return {.name = entry_.name, .rows = rows, .documents = counts_, .identity = identity, .pairs = rows};
    }
    return {
        entry_.name,
        std::make_shared<const DocumentRows>(checked(entry_, vocab_size_), packed_, options_.sequence, range),
        counts_, identity};
  }

 private:
  void pack_answers(const config::Data& data) {
    PackedPairs packed = pack_pairs(*entry_.tokens, options_, entry_.key);
    if (entry_.weighs_last) packed.weighed = Weighed::last;
    pairs_ = std::make_shared<const PackedPairs>(std::move(packed));
    counts_ = pairs_->counts;
    content_ = hash_text(fmt::format("{} {} {} {} {} {}", entry_.preference, entry_.tokens->identity(),
                                     pairs_->content, options_.sequence, data.long_documents,
                                     options_.max_documents));
  }

  const Entry& entry_;
  PackingOptions options_;
  std::int64_t vocab_size_;
  DocumentCounts counts_;
  std::shared_ptr<const PackedRows> packed_;  ///< null if the documents are pairs
  std::shared_ptr<const PackedPairs> pairs_;
  std::shared_ptr<References> references_ = std::make_shared<References>();
  std::uint64_t content_ = 0;
};

SplitRows split_documents(const Entry& entry, const config::Data& data, double fraction,
                          std::int64_t vocab_size) {
  const PackedEntry packed(entry, data, vocab_size);
  const std::int64_t all = packed.rows();
  if (fraction == 0) return {packed.set({0, all}), {}};
  const std::int64_t held = std::max<std::int64_t>(std::llround(fraction * static_cast<double>(all)), 1);
  REQUIRE(all > held,
          "{}: its documents fill {} of data.sequence = {} tokens{}, and data.validation_fraction ({}) holds "
          "out {}: give more data, data.validation, or {}",
          entry.key, count_text(all, "row"), data.sequence, packed.left_out(), fraction, held,
          packed.truncates() ? "data.long_documents = \"split\"" : "a shorter data.sequence");
  const Permutation order = packed.mixed();
  return {packed.set({0, all - held, order}), packed.set({all - held, all, order})};
}

}  // namespace

bool in_documents(const Entry& entry, const config::Data& data) {
  const bool has = entry.tokens->has_documents();
  const std::string file = entry.tokens->locate(0).file;
  const std::string held = entry.tokens->preference();
  REQUIRE(entry.preference.empty() || held == entry.preference,
          "{}: '{}' holds no {} of answers, which preference.loss_type needs: tools/prepare_data.py makes "
          "them of "
          "records with {}",
          entry.key, file, entry.preference,
          entry.preference == "pairs" ? "\"chosen\" and \"rejected\""
                                      : "\"prompt\", \"completion\" and \"label\"");
  REQUIRE(
      !entry.preference.empty() || held.empty(),
      "{}: '{}' holds {} of answers, some of which are not to be learned: set preference.loss_type, such as "
      "\"{}\"",
      entry.key, file, held, held == "pairs" ? "sigmoid" : "kto");
  REQUIRE(
      has || data.packing != "documents",
      "{}: data.packing = \"documents\", but '{}' does not say where its documents begin (document_offsets); "
      "tools/prepare_data.py writes files that do",
      entry.key, entry.tokens->locate(0).file);
  return has && data.packing != "windows";
}

SplitRows make_rows(const Entry& entry, const config::Data& data, double held_out, std::int64_t vocab_size) {
  return in_documents(entry, data) ? split_documents(entry, data, held_out, vocab_size)
                                   : split_windows(entry, data, held_out, vocab_size);
}

void require_documents(const Entry& entry) {
  const std::string held = entry.tokens->preference();
  REQUIRE(
      held.empty() || !entry.preference.empty(),
      "{}: '{}' holds {} of answers, whose losses are those of a run: it evaluates them as data.validation, "
      "with preference.loss_type and evaluation.interval; documents are evaluated here",
      entry.key, entry.tokens->locate(0).file, held);
}

RowSet make_rows_to_evaluate(const Entry& entry, const config::Data& data, std::int64_t tokens,
                             std::int64_t vocab_size) {
  if (!in_documents(entry, data)) {
    const std::int64_t size = entry.tokens->size(), end = tokens < size - 1 ? tokens + 1 : size;
    RowSet set = windows(entry, data, 0, end, vocab_size, Tail::kept);
    require_trained(entry, set, fmt::format("its first {} tokens", end));
    return set;
  }
  const PackedEntry packed(entry, data, vocab_size);
  return packed.set({0, std::min(packed.rows(), (tokens - 1) / data.sequence + 1), packed.mixed()});
}

RowSet make_validation_rows(const Entry& entry, const config::Data& data, std::int64_t vocab_size) {
  if (!in_documents(entry, data)) return all_windows(entry, data, vocab_size);
  const PackedEntry packed(entry, data, vocab_size);
  RowSet set = packed.set({0, packed.rows(), packed.mixed()});
  set.identity = hash_text("validation", set.identity);  // the order decides what a short evaluation takes
  return set;
}

}  // namespace ztrain::data
