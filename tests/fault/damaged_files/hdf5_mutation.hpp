#pragma once
// Damage to HDF5 files by the library itself: what is written is a sound file that says something else.

#include <filesystem>
#include <string>

#include "random.hpp"

namespace ztrain::damaged_files {

/// Changes one dataset or attribute of the file and says what.
std::string damage_hdf5(const std::filesystem::path& path, Random& random);

/// Some items of a list of integers, or one of a table [rows, columns], get other values.
std::string damage_numbers(const std::filesystem::path& path, const char* name, Random& random);

}  // namespace ztrain::damaged_files
