#pragma once
// Whole documents into rows of a fixed number of tokens.
//
// Best-fit decreasing, as H. Ding et al. use it ("Fewer truncations improve language modeling", ICML 2024):
// from the longest document on, each goes into the row with the least space left that holds it, or opens a
// new row. With few exceptions, rows are then full and no document is cut.

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokens/token_source.hpp"

namespace ztrain::data {

/// What becomes of a document longer than a row: its first tokens; parts that are packed as documents of
/// their own; nothing.
enum class LongDocuments : std::uint8_t { truncate, split, drop };

struct PackingOptions {
  std::int64_t sequence = 0;  ///< tokens of a row, 1 .. 2^24
  LongDocuments long_documents = LongDocuments::truncate;
  std::int64_t max_documents = 0;  ///< most pieces in one row; 0: no limit
};

/// A document, or the part of a long one, that lies in one row.
struct Piece {
  std::int64_t begin = 0;           ///< of its first token in the source
  std::int32_t length = 0;          ///< tokens, at most those of a row
  std::uint32_t trained : 31 = 0;   ///< of its targets, those that are to be predicted; above 0
  std::uint32_t continues : 1 = 0;  ///< 1: the document goes on, so the last token has a target too
};

/// What became of the documents of a source.
struct DocumentCounts {
  std::int64_t documents = 0;                          ///< all
  std::int64_t truncated = 0, split = 0, dropped = 0;  ///< of them, too long for a row
  std::int64_t untrained = 0;  ///< left out, since none of their tokens is to be predicted
  std::int64_t single = 0;     ///< documents of one token, which are untrained
  std::int64_t cut_off = 0;    ///< tokens of those that are truncated or dropped, which are in no row
};

struct CutDocuments {
  std::vector<Piece> pieces;  ///< in the order of the source
  DocumentCounts counts;
  std::uint64_t content = 0;  ///< a hash of document offsets and mask
};

/// The pieces of a source's documents, 16 bytes of memory each; 8 more a document while it runs. Reads
/// offsets and mask whole, once. Throws Error naming file and key for offsets that do not increase and masks
/// that hold other than 0 and 1.
CutDocuments cut_documents(const TokenSource& source, const PackingOptions& options, const std::string& key);

/// Row r holds pieces [first[r], first[r + 1]), in the order in which they were placed.
struct PackedRows {
  std::vector<Piece> pieces;
  std::vector<std::int64_t> first{0};
  std::int64_t rows() const { return static_cast<std::int64_t>(first.size()) - 1; }
};

/// Deterministic, O(pieces log(sequence)). Pieces of one length are placed in the order given. Takes at most
/// 40 bytes of memory a piece and 8 a row, of which 16 and 8 remain, if the pieces are moved in.
PackedRows pack(std::vector<Piece> pieces, const PackingOptions& options);

}  // namespace ztrain::data
