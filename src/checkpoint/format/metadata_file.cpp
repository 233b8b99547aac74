#include "checkpoint/format/metadata_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "checkpoint/format/format.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* checksum_key = "index_checksum";

fs::path metadata_path(const fs::path& folder) {
  return folder / config::checkpoint_metadata_file;
}

/// Of the blocks one after the other, each with what those before it came to as its seed.
std::string checksum_of(const fs::path& path) {
  const PosixFile file = PosixFile::open_to_read(path);
  std::vector<std::byte> block(static_cast<std::size_t>(checksum_block));
  std::uint64_t sum = 0;
  for (std::int64_t at = 0, size = file.size(); at < size;) {
    const std::int64_t bytes = std::min(checksum_block, size - at);
    file.read_at(block.data(), bytes, at);
    sum = hash_bytes(block.data(), static_cast<std::size_t>(bytes), sum);
    at += bytes;
  }
  return hex(sum);
}

json sealed_metadata(const fs::path& folder) {
  const std::string path = metadata_path(folder).string();
  REQUIRE(file_exists(path), "{}: is missing, and with it the checksum of {}; {}", path, index_name, advice);
  const std::string text = read_file(path, config::largest_metadata);
  json parsed;
  try {
    parsed = parse_json(text, path, {.bytes = config::largest_metadata});
  } catch (const Error&) {
    fail("{}: is damaged: its {} bytes are no JSON; {}", path, text.size(), advice);
  }
  REQUIRE(parsed.is_object(), "{}: is damaged: it is not a JSON object; {}", path, advice);
  REQUIRE(parsed.contains(checksum_key) && parsed.at(checksum_key).is_string(),
          "{}: was changed: it has no {}, the checksum of {}; {}", path, checksum_key, index_name, advice);
  return parsed;
}

}  // namespace

void write_metadata_file(const fs::path& folder, const json& metadata) {
  json sealed = metadata.is_object() ? metadata : json::object();
  sealed[checksum_key] = checksum_of(folder / index_name);
  const std::string text = json_text(sealed, 2) + "\n";
  PosixFile file = PosixFile::create(metadata_path(folder));
  file.write_at(text.data(), std::ssize(text), 0);
  file.sync();
  file.close();
}

void require_intact_index(const fs::path& folder) {
  if (!file_exists((folder / index_name).string())) return;  // which its reader says
  REQUIRE(sealed_metadata(folder).at(checksum_key) == checksum_of(folder / index_name),
          "{}: is damaged: its bytes do not have the checksum that {} has of them; {}",
          (folder / index_name).string(), config::checkpoint_metadata_file, advice);
}

void require_same_metadata(const fs::path& folder, const json& metadata) {
  json sealed = sealed_metadata(folder);
  sealed.erase(checksum_key);
  REQUIRE(sealed == metadata, "{}: was changed: it is not what {} has of it; {}",
          metadata_path(folder).string(), index_name, advice);
}

}  // namespace ztrain::checkpoint
