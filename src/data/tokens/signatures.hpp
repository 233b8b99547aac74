#pragma once
// Internal to data. First bytes by which files of a kind are known.

#include <algorithm>
#include <string>
#include <string_view>

#include "files/input_file.hpp"

namespace ztrain::data {

inline constexpr std::string_view hdf5_signature = "\x89HDF\r\n\x1a\n";
inline constexpr std::string_view numpy_signature = "\x93NUMPY";
inline constexpr std::string_view parquet_signature = "PAR1";
inline constexpr std::string_view arrow_signature = "ARROW1";

inline bool begins_with(const InputFile& file, std::string_view signature) {
  std::string first(static_cast<std::size_t>(std::min(file.size(), std::ssize(signature))), '\0');
  file.read(0, std::ssize(first), first.data());
  return first == signature;
}

}  // namespace ztrain::data
