#include "data/identity.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/hash.hpp"

namespace ztrain::data {

std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          std::uint64_t samples) {
  const std::string stem = std::filesystem::path(path).stem().string();
  return hash_text(fmt::format("{} {} {}", stem, tokens, samples), before);
}

std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          const std::byte* bytes, std::size_t size) {
  constexpr std::size_t samples = 16, length = 4096;
  if (size <= samples * length) return identity_of(before, path, tokens, hash_bytes(bytes, size));
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < samples; ++i) {
    hash = hash_bytes(bytes + (size - length) / (samples - 1) * i, length, hash);
  }
  return identity_of(before, path, tokens, hash);
}

}  // namespace ztrain::data
