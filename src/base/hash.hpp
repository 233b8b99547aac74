#pragma once
// xxHash (XXH3, 64 bits) of bytes: checksums of checkpoints, identities of decks and data, random stream
// names.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ztrain {

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);
std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0);

/// Returns 16 hexadecimal digits.
std::string hex(std::uint64_t value);

}  // namespace ztrain
