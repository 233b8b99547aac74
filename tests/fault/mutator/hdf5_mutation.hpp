#pragma once
// Damage to HDF5 files by the library itself: what is written is a sound file that says something else.

#include <filesystem>
#include <string>

#include "random.hpp"

namespace ztrain::mutator {

/// Changes one dataset or attribute of the file and says what.
std::string damage_hdf5(const std::filesystem::path& path, Random& random);

/// One item of a table of integers, [rows, columns], gets another value.
std::string damage_table(const std::filesystem::path& path, const char* name, Random& random);

}  // namespace ztrain::mutator
