#pragma once
// The identity of token files: what they hold, not where they lie.

#include <cstdint>
#include <string>

namespace ztrain::data {

/// Hash chained on `before`: the file's stem, its number of tokens, and `samples`, the hash of samples of its
/// content.
std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          std::uint64_t samples);

}  // namespace ztrain::data
