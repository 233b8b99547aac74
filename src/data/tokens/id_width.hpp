#pragma once
// How many bytes an id of a raw token file has. Such files do not say it: their bytes, the vocabulary of the
// model and data.format do. Internal to data.

#include <cstdint>
#include <string>

#include "files/input_file.hpp"

namespace ztrain::data {

inline constexpr std::int64_t ids_of_16_bits = std::int64_t{1} << 16;

/// The width that a raw file's first ids have, 2 or 4 bytes. vocab_size: model.vocab_size; 0: not known.
int likely_width(const InputFile& file, std::int64_t vocab_size);

/// Throws Error, naming key, file and the format to give, where the first ids of a raw file that is read as
/// ids of `width` bytes are plainly those of another width.
void require_width(const InputFile& file, int width, std::int64_t vocab_size, const std::string& key);

}  // namespace ztrain::data
