#pragma once
// Packs whole documents into rows of a fixed number of tokens, by best-fit decreasing, as H. Ding et al. use
// it ("Fewer truncations improve language modeling", ICML 2024). From the longest document on, each goes into
// the row with the least space that holds it, or opens a new row. With few exceptions, rows are then full and
// no document is cut.

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokens/token_source.hpp"

namespace ztrain::data {

/// Treatment of a document longer than a row: keeps its first tokens, packs its parts as documents of their
/// own, or drops it.
enum class LongDocuments : std::uint8_t { truncate, split, drop };

struct PackingOptions {
  std::int64_t sequence = 0;  ///< tokens of a row, 1 .. 2^24
  LongDocuments long_documents = LongDocuments::truncate;
  std::int64_t max_documents = 0;  ///< most pieces in one row; 0: no limit
};

/// A document, or the part of a long one, that lies in one row.
struct Piece {
  std::int64_t begin = 0;           ///< position of its first token in the source
  std::int32_t length = 0;          ///< tokens, at most those of a row
  std::uint32_t trained : 31 = 0;   ///< number of its targets that are to be predicted; above 0
  std::uint32_t continues : 1 = 0;  ///< 1: the document goes on, so the last token has a target too
};

/// Counts of a source's documents.
struct DocumentCounts {
  std::int64_t documents = 0;                          ///< all documents
  std::int64_t truncated = 0, split = 0, dropped = 0;  ///< documents too long for a row
  std::int64_t untrained = 0;  ///< documents left out because none of their tokens is to be predicted
  std::int64_t single = 0;     ///< documents of one token, which are untrained
  std::int64_t cut_off = 0;    ///< tokens of truncated or dropped documents that are in no row

  DocumentCounts& operator+=(const DocumentCounts& other);
};

struct CutDocuments {
  std::vector<Piece> pieces;  ///< in the order of the source
  DocumentCounts counts;
  std::uint64_t content = 0;  ///< hash of document offsets and mask
};

/// Cuts a source's documents into pieces of 16 bytes of memory each, and 8 more a document while it runs.
/// Reads offsets and mask whole, once. Throws Error naming file and key for offsets that do not increase and
/// for masks with other values than 0 and 1.
CutDocuments cut_documents(const TokenSource& source, const PackingOptions& options, const std::string& key);

/// Packed rows. Row r holds pieces [first[r], first[r + 1]), in the order in which they were placed.
struct PackedRows {
  std::vector<Piece> pieces;
  std::vector<std::int64_t> first{0};
  std::int64_t rows() const { return static_cast<std::int64_t>(first.size()) - 1; }
};

/// Packs the pieces. Deterministic, O(pieces log(sequence)). Pieces of one length are placed in the given
/// order. Takes at most 40 bytes of memory a piece and 8 a row; 16 and 8 remain if the pieces are moved in.
PackedRows pack(std::vector<Piece> pieces, const PackingOptions& options);

}  // namespace ztrain::data
