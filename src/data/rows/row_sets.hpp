#pragma once
// From opened files to rows: windows or packed documents, and what is held out of them for validation.

#include <memory>
#include <string>

#include "config/deck.hpp"
#include "data/rows/packing.hpp"
#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Files that are one source of rows: all of data.train, or one entry of data.train or data.validation.
struct Entry {
  std::string key;   ///< for messages: "data.train", or "data.train[1]" where there are several
  std::string name;  ///< for people: the file's or pattern's stem, unique among those of its key
  std::shared_ptr<const TokenSource> tokens;
};

struct RowSet {
  std::string name;
  std::shared_ptr<const RowSource> rows;
  DocumentCounts documents;    ///< of the whole entry, before anything is held out; 0 for windows
  std::uint64_t identity = 0;  ///< of the files with mask and offsets, and of how rows are made of them
};

struct SplitRows {
  RowSet train;
  RowSet held_out;  ///< rows is null where nothing is
};

/// held_out: part of the entry; 0: nothing. Of windows the end of the tokens is held out, of packed documents
/// rows from all over the packing, the same for every seed. Throws Error naming the key where too little is
/// there, where data.packing asks for documents that the files do not show, and where no token is to be
/// predicted.
SplitRows make_rows(const Entry& entry, const config::Data& data, double held_out, std::int64_t vocab_size);

/// An entry of data.validation, all of it: windows in the order of the files; packed documents in a mixed
/// order, the same for every seed, so that any first part of them is like the whole. Throws as make_rows
/// does.
RowSet make_validation_rows(const Entry& entry, const config::Data& data, std::int64_t vocab_size);

}  // namespace ztrain::data
