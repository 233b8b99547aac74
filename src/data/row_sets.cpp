#include "data/row_sets.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/document_rows.hpp"
#include "data/window_rows.hpp"

namespace ztrain::data {
namespace {

RowSet windows(const Entry& entry, const config::Data& data, std::int64_t begin, std::int64_t end,
               std::int64_t vocab_size) {
  const auto rows = std::make_shared<const WindowRows>(CheckedTokens{entry.tokens, entry.key, vocab_size},
                                                       begin, end, data.sequence);
  const std::uint64_t identity = hash_text(
      fmt::format("windows {} {} {} {}", entry.tokens->identity(), begin, end, rows->mask_identity()));
  return {entry.name, rows, {}, identity};
}

SplitRows split_windows(const Entry& entry, const config::Data& data, double fraction,
                        std::int64_t vocab_size) {
  const std::int64_t window = data.sequence + 1, size = entry.tokens->size();
  if (fraction == 0) return {windows(entry, data, 0, size, vocab_size), {}};
  const auto wanted = std::llround(fraction * static_cast<double>(size));
  const std::int64_t held = std::max<std::int64_t>(wanted, window);
  REQUIRE(size - held >= window,
          "{} has {} tokens; data.validation_fraction ({}) holds out {} of them, and the rest is "
          "fewer than one "
          "window of data.sequence + 1 = {}: give more data, data.validation, or a shorter data.sequence",
          entry.key, size, fraction, held, window);
  return {windows(entry, data, 0, size - held, vocab_size),
          windows(entry, data, size - held, size, vocab_size)};
}

LongDocuments rule_for_long(const std::string& name) {
  if (name == "split") return LongDocuments::split;
  return name == "drop" ? LongDocuments::drop : LongDocuments::truncate;
}

PackedRows pack_all(const Entry& entry, const CutDocuments& cut, const PackingOptions& options) {
  const DocumentCounts& n = cut.counts;
  const std::string file = entry.tokens->locate(0).file;
  REQUIRE(!cut.pieces.empty() || n.dropped < n.documents,
          "{}: '{}', ...: all {} documents are longer than data.sequence ({}), and data.long_documents = "
          "\"drop\"",
          entry.key, file, n.documents, options.sequence);
  REQUIRE(!cut.pieces.empty(),
          "{}: '{}', ...: mask without a single token that is to be predicted (loss_mask) in its {} "
          "documents, {} "
          "of them truncated to data.sequence ({})",
          entry.key, file, n.documents, n.truncated, options.sequence);
  return pack(cut.pieces, options);
}

SplitRows split_documents(const Entry& entry, const config::Data& data, double fraction,
                          std::int64_t vocab_size) {
  const PackingOptions options{data.sequence, rule_for_long(data.long_documents), data.max_documents};
  const CutDocuments cut = cut_documents(*entry.tokens, options, entry.key);
  const auto packed = std::make_shared<const PackedRows>(pack_all(entry, cut, options));
  const std::uint64_t content =
      hash_text(fmt::format("documents {} {} {} {} {}", entry.tokens->identity(), cut.content,
                            options.sequence, data.long_documents, options.max_documents));
  const auto rows = [&](RowRange range) {
    const std::uint64_t identity = hash_text(fmt::format("{} {}", range.begin, range.end), content);
    return RowSet{entry.name,
                  std::make_shared<const DocumentRows>(CheckedTokens{entry.tokens, entry.key, vocab_size},
                                                       packed, options.sequence, range),
                  cut.counts, identity};
  };
  const std::int64_t all = packed->rows();
  if (fraction == 0) return {rows({0, all}), {}};
  const std::int64_t held = std::max<std::int64_t>(std::llround(fraction * static_cast<double>(all)), 1);
  REQUIRE(
      all > held,
      "{}: its documents fill {} rows of data.sequence = {} tokens, and data.validation_fraction ({}) holds "
      "out {} of them: give more data, data.validation, or a shorter data.sequence",
      entry.key, all, options.sequence, fraction, held);
  // Rows are packed from the longest documents to the shortest: an end of them would not be like the rest.
  const Permutation order(all, hash_text("held out"), 0);
  return {rows({0, all - held, order}), rows({all - held, all, order})};
}

}  // namespace

SplitRows make_rows(const Entry& entry, const config::Data& data, double held_out, std::int64_t vocab_size) {
  const bool has = entry.tokens->has_documents();
  REQUIRE(
      has || data.packing != "documents",
      "{}: data.packing = \"documents\", but '{}' does not say where its documents begin (document_offsets); "
      "tools/prepare_data.py writes files that do",
      entry.key, entry.tokens->locate(0).file);
  return has && data.packing != "windows" ? split_documents(entry, data, held_out, vocab_size)
                                          : split_windows(entry, data, held_out, vocab_size);
}

}  // namespace ztrain::data
