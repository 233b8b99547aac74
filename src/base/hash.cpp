#include "base/hash.hpp"

#include <fmt/format.h>

// The library's own code is compiled for any processor of the kind; this is for that of the build. Wider
// vectors are no faster, and the compiler takes theirs for uninitialized.
#define XXH_INLINE_ALL
#ifdef __AVX2__
#define XXH_VECTOR 2  // XXH_AVX2
#endif
#include <xxhash.h>

namespace ztrain {

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return hash_bytes(text.data(), text.size(), seed);
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

}  // namespace ztrain
