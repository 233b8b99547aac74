#pragma once
// Internal to data. Finds how many bytes an id of a raw token file has. Such files do not say it, but their
// bytes, the model's vocabulary and data.format do.

#include <cstdint>
#include <string>

#include "files/input_file.hpp"

namespace ztrain::data {

inline constexpr std::int64_t ids_of_16_bits = std::int64_t{1} << 16;

/// Returns the width that a raw file's first ids have, 2 or 4 bytes. vocab_size is model.vocab_size; 0: not
/// known.
int likely_width(const InputFile& file, std::int64_t vocab_size);

/// Throws Error if the first ids of a raw file that is read with `width` bytes plainly have another width.
/// Names key, file and the format to give.
void require_width(const InputFile& file, int width, std::int64_t vocab_size, const std::string& key);

}  // namespace ztrain::data
