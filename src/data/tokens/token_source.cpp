#include "data/tokens/token_source.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/tokens/file_tokens.hpp"
#include "data/tokens/hdf5_tokens.hpp"

namespace ztrain::data {
namespace {

std::string kind_by_name(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".h5" || extension == ".hdf5") return "hdf5";
  return extension == ".bin" ? "token" : "text";
}

/// Returns "hdf5", "token" or "text".
std::string kind_of(const std::vector<std::string>& files, const std::string& format,
                    const std::string& key) {
  if (format == "hdf5" || format == "text") return format;
  if (format != "auto") return "token";
  const std::string kind = kind_by_name(files.front());
  for (const auto& file : files) {
    REQUIRE(kind_by_name(file) == kind,
            "{}: '{}' looks like a {} file and '{}' like a {} file; give each an entry of its "
            "own in data.train, and data.weights",
            key, files.front(), kind, file, kind_by_name(file));
  }
  return kind;
}

}  // namespace

void TokenSource::read_mask(std::int64_t, std::int64_t count, std::uint8_t* out) const {
  std::fill_n(out, count, std::uint8_t{1});
}

std::string TokenSource::id_text(std::int64_t position) const {
  std::int32_t id = 0;
  read(position, 1, &id);
  return id >= 0 ? fmt::format("{}", id)
                 : fmt::format("{} ({} where ids have no sign)", id, static_cast<std::uint32_t>(id));
}

std::uint64_t TokenSource::end_identity() const {
  constexpr std::int64_t most = 16;
  std::uint64_t hash = 0;
  for (std::int64_t end = size(); end > 0;) {
    const std::int64_t of_file = locate(end - 1).position + 1, count = std::min(of_file, most);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    read(end - count, count, ids.data());
    hash = hash_bytes(ids.data(), ids.size() * sizeof(std::int32_t), hash);
    end -= of_file;
  }
  return hash;
}

void TokenSource::require_inside(std::int64_t begin, std::int64_t count) const {
  REQUIRE(begin >= 0 && count >= 0 && begin <= size() - count,
          "tokens [{}, {}) are outside the {} tokens of {}", begin, begin + count, size(), files_of(*this));
}

std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          std::uint64_t samples) {
  const std::string stem = std::filesystem::path(path).stem().string();
  return hash_text(fmt::format("{} {} {}", stem, tokens, samples), before);
}

std::unique_ptr<TokenSource> open_tokens(const std::vector<std::string>& patterns, const std::string& format,
                                         const std::string& key, const Reader& reader) {
  REQUIRE(!patterns.empty(), "{} names no files", key);
  const auto files = expand_patterns(patterns, key);
  require_unpacked(files, key);
  const std::string kind = kind_of(files, format, key);
  if (kind == "hdf5") return std::make_unique<Hdf5Tokens>(files, key);
  if (kind == "text") {
    require_text(files, format == "text", reader, key);
    return FileTokens::text(files, key);
  }
  return FileTokens::binary(files, format, reader.vocab_size, key);
}

std::string files_of(const TokenSource& source) {
  const std::string first = source.locate(0).file;
  const bool more = source.locate(source.size() - 1).file != first;
  return fmt::format("'{}'{}", first, more ? ", ..." : "");
}

}  // namespace ztrain::data
