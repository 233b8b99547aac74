#pragma once
// Finds whether the bytes of a checkpoint are those that were written. Every byte of every file has a
// checksum: index.h5 has those of the pieces of tensors, block by block, and of the frames around them;
// metadata.json has that of index.h5 and of itself.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

struct VerifyOptions {
  std::string only = {};    ///< name of one file; "": all
  int part = 0, parts = 1;  ///< checks every parts-th block of the shard files; part 0 checks the rest too
  Progress progress = {};   ///< counts bytes of tensors
};

struct Verified {
  std::vector<std::string> faults;  ///< descriptions of damage; each names its file
  std::vector<std::string> unread;  ///< descriptions of what this process could not read, and may be sound
  std::vector<std::string> others;  ///< names in the folder that do not belong to the checkpoint
  /// Numbers of files, tensors of all states, and bytes that were checked.
  std::int64_t files = 0, tensors = 0, bytes = 0;
  /// False for an older version, which has no checksums of what lies around tensors, and of metadata.json.
  bool covers_all = true;
};

/// Checks everything, and goes on after damage. If index.h5 is damaged, nothing is known of the shard files.
/// Not collective.
Verified verify(const std::filesystem::path& folder, const VerifyOptions& options = {});

/// Sorts the texts, and leaves each once.
void tell_once(std::vector<std::string>& texts);

/// Throws Damaged for damage that shows without reading tensors, whose checksums are compared when they are
/// loaded. Throws Error if it cannot be known.
void require_sound(const std::filesystem::path& folder);

}  // namespace ztrain::checkpoint
