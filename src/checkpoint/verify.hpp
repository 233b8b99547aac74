#pragma once
// Whether the bytes of a checkpoint are those that were written. Every byte of every file has a checksum: the
// pieces of tensors block by block, and the frames around them, in index.h5; all of index.h5 in
// metadata.json; and metadata.json in itself.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

struct VerifyOptions {
  std::string only = {};    ///< the name of one file; "": all
  int part = 0, parts = 1;  ///< of the shard files' blocks this one reads every parts-th; part 0 the rest too
  Progress progress = {};   ///< in bytes of tensors
};

struct Verified {
  std::vector<std::string> faults;                 ///< of what is damaged; each names its file
  std::vector<std::string> unread;                 ///< of what this process could not read, and may be whole
  std::vector<std::string> others;                 ///< names in the folder that are not the checkpoint's
  std::int64_t files = 0, tensors = 0, bytes = 0;  ///< that were looked at; tensors: of all states
  /// False of an older version's, which has no checksums of what lies around tensors, and of metadata.json.
  bool covers_all = true;
};

/// Looks at everything, and goes on behind what is wrong. Where index.h5 is damaged nothing is known of the
/// shard files. Not collective.
Verified verify(const std::filesystem::path& folder, const VerifyOptions& options = {});

/// Sorts them, and leaves each once.
void tell_once(std::vector<std::string>& texts);

/// Throws Damaged for what verify() finds without reading tensors: these have their checksums looked at when
/// they are loaded. Throws Error where that cannot be known.
void require_sound(const std::filesystem::path& folder);

}  // namespace ztrain::checkpoint
