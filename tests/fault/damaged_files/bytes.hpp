#pragma once
// Damage that knows nothing of what a file holds. Each function says in words what it did.

#include <filesystem>
#include <string>
#include <vector>

#include "random.hpp"

namespace ztrain::damaged_files {

std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

/// Flips, overwrites with integers at the borders of their types, cuts, repeats, zeroes or inserts.
std::string damage(std::string& bytes, Random& random);
std::string damage_file(const std::filesystem::path& path, Random& random);

/// Puts something else where a file is: nothing, an empty file, a folder, a FIFO, a device, a link that leads
/// nowhere or to itself, or a copy of one of `others`.
std::string replace_file(const std::filesystem::path& path, const std::vector<std::filesystem::path>& others,
                         Random& random);

/// The regular files below a folder, sorted.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace ztrain::damaged_files
