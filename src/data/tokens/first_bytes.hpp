#pragma once
// Internal to data. Finds out about a file by its first bytes: of which kind it is, and how many bytes an id
// of a raw token file has. Raw files do not say it, but their bytes, the model's vocabulary and data.format
// do.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "files/input_file.hpp"

namespace ztrain::data {

// Files of a kind are known by these first bytes.
inline constexpr std::string_view hdf5_signature = "\x89HDF\r\n\x1a\n";
inline constexpr std::string_view numpy_signature = "\x93NUMPY";
inline constexpr std::string_view parquet_signature = "PAR1";
inline constexpr std::string_view arrow_signature = "ARROW1";

inline bool begins_with(const InputFile& file, std::string_view signature) {
  std::string first(static_cast<std::size_t>(std::min(file.size(), std::ssize(signature))), '\0');
  file.read(0, std::ssize(first), first.data());
  return first == signature;
}

inline constexpr std::int64_t ids_of_16_bits = std::int64_t{1} << 16;

/// Returns the width that a raw file's first ids have, 2 or 4 bytes. vocab_size is model.vocab_size; 0: not
/// known.
int likely_width(const InputFile& file, std::int64_t vocab_size);

/// Throws Error if the first ids of a raw file that is read with `width` bytes plainly have another width.
/// Names key, file and the format to give.
void require_width(const InputFile& file, int width, std::int64_t vocab_size, const std::string& key);

}  // namespace ztrain::data
