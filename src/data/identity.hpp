#pragma once
// The identity of token files: what they hold, not where they lie.

#include <cstddef>
#include <cstdint>
#include <string>

namespace ztrain::data {

/// Hash chained on `before`: the file's stem, its number of tokens, and its tokens' bytes, of which a file
/// longer than 64 KiB gives 16 evenly spaced samples of 4 KiB.
std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          const std::byte* bytes, std::size_t size);

/// The same for a file that is not in memory: samples is the hash of samples of its content.
std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          std::uint64_t samples);

}  // namespace ztrain::data
