#include "base/hash.hpp"

#include <fmt/format.h>

// XXH_INLINE_ALL compiles the hash for the build's processor; the library's own code is for any. Wider
// vectors are not faster, and the compiler warns that theirs are uninitialized.
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
