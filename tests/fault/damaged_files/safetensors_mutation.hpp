#pragma once
// Damage to safetensors files, and what a plain reading of the format says of one.

#include <filesystem>
#include <string>

#include "random.hpp"

namespace ztrain::damaged_files {

/// Changes the length, the header or the bytes of a file and says what.
std::string damage_safetensors(const std::filesystem::path& path, Random& random);

/// What is wrong with a file; "" for a sound one: its tensors lie in it side by side, each as long as its
/// shape says.
std::string wrong_in_safetensors(const std::filesystem::path& path);

}  // namespace ztrain::damaged_files
