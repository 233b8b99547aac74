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

}  // namespace ztrain::data
