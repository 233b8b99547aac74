#pragma once
// The folders that a run writes to, made ready before it starts.

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/posix_file.hpp"

namespace ztrain::train {

/// Creates a folder and proves that files can be written in it. key: what the user set. Throws Error.
void make_writable(const std::filesystem::path& folder, const char* key);

/// Holds a folder for this process; the file is to be kept open as long. Throws Error when another process
/// holds it, which names that by the host and the number that it left there. Where the file system has no
/// locks, every process gets it. key: what the user set.
checkpoint::PosixFile lock_folder(const std::filesystem::path& folder, const char* key,
                                  const std::string& host);

/// A file of this content. Throws Error.
void write_text(const std::filesystem::path& path, const std::string& text, const char* key);

/// Checkpoints beyond a step from which a run goes on are another run's, or ones that it went back from:
/// among its own they would pass for newer ones. They are moved to a folder of their own, called after
/// `folder` with the suffix; its name, or "" when there were none.
std::string move_aside(const std::filesystem::path& folder, std::int64_t step, const std::string& suffix);

}  // namespace ztrain::train
