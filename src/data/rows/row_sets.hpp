#pragma once
// Makes rows of opened files, windows or packed documents, and holds some out for validation.

#include <memory>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "data/rows/packing.hpp"
#include "data/rows/row_order.hpp"
#include "data/rows/row_source.hpp"

namespace ztrain::data {

class PairRows;

/// Files that are one source of rows: all of data.train, or one entry of data.train or data.validation.
struct Entry {
  std::string key;   ///< for messages: "data.train", or "data.train[1]" if there are several
  std::string name;  ///< for people: the stem of the file or pattern, unique among those of its key
  std::shared_ptr<const TokenSource> tokens;
  /// Value that TokenSource::preference must have, as preference.loss_type needs it.
  std::string preference{};
  bool weighs_last = false;    ///< whether the last token of an answer alone has a weight
  std::int64_t first_place{};  ///< as CheckedTokens::first_place
};

struct RowSet {
  std::string name;
  std::shared_ptr<const RowSource> rows;
  DocumentCounts documents;    ///< counts of the whole entry, before anything is held out; 0 for windows
  std::uint64_t identity = 0;  ///< hash of the files with mask and offsets, and of how rows are made of them
  /// Files of a training set, by the parts in which they joined it: one in a new run.
  std::vector<FilePart> parts{};
  /// The rows, if they are of pairs; else null. Their references are filled in when a run begins.
  std::shared_ptr<const PairRows> pairs{};
};

struct SplitRows {
  RowSet train;
  RowSet held_out;  ///< its rows are null if nothing is held out
};

/// Returns whether rows of an entry are packed documents, and not windows. Throws as make_rows does.
bool in_documents(const Entry& entry, const config::Data& data);

/// Makes rows of an entry. held_out is the part that is held out; 0: nothing. Of windows the end of the
/// tokens is held out; of packed documents rows from all over the packing, the same for every seed. Throws
/// Error naming the key if too little is there, if data.packing asks for documents that the files do not
/// mark, and if no token is to be predicted.
SplitRows make_rows(const Entry& entry, const config::Data& data, double held_out, std::int64_t vocab_size);

/// Throws Error where an entry holds answers of which the caller evaluates none (Entry::preference is empty).
void require_documents(const Entry& entry);

/// Makes rows of an entry in which each token of it that has one before it in its document is a target once:
/// windows, of which the last may be padded, or packed documents in the order of make_validation_rows.
/// `tokens` limits the targets of windows, and the whole rows of documents. Throws as make_rows does.
RowSet make_rows_to_evaluate(const Entry& entry, const config::Data& data, std::int64_t tokens,
                             std::int64_t vocab_size);

/// Makes rows of a whole entry of data.validation. Windows are in the order of the files. Packed documents
/// are in a mixed order, the same for every seed, so that any first part is like the whole. Throws as
/// make_rows does.
RowSet make_validation_rows(const Entry& entry, const config::Data& data, std::int64_t vocab_size);

}  // namespace ztrain::data
