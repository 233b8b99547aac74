#include "checkpoint/format/metadata_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "checkpoint/format/damaged.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *checksum_key = "index_checksum", *own_key = "metadata_checksum";

fs::path metadata_path(const fs::path& folder) {
  return folder / config::checkpoint_metadata_file;
}

std::string checksum_of_file(const fs::path& path) {
  const PosixFile file = PosixFile::open_to_read(path);
  return hex(checksum_of(file, 0, file.size()));
}

std::string text_of(const json& metadata) {
  return json_text(metadata, 2) + "\n";
}

std::string text_of_file(const std::string& path) {
  return read_or_damaged(path, [&] {
    if (!file_exists(path))
      fail_damaged("{}: is missing, and with it the checksum of {}; {}", path, index_name, advice);
    return read_file(path, config::largest_metadata);
  });
}

json sealed_metadata(const fs::path& folder) {
  const std::string path = metadata_path(folder).string();
  const std::string text = text_of_file(path);
  json parsed;
  try {
    parsed = parse_json(text, path, {.bytes = config::largest_metadata});
  } catch (const Error&) {
    fail_damaged("{}: is damaged: its {} bytes are no JSON; {}", path, text.size(), advice);
  }
  if (!parsed.is_object()) fail_damaged("{}: is damaged: it is not a JSON object; {}", path, advice);
  if (!parsed.contains(checksum_key) || !parsed.at(checksum_key).is_string())
    fail_damaged("{}: was changed: it has no {}, the checksum of {}; {}", path, checksum_key, index_name,
                 advice);
  return parsed;
}

}  // namespace

void write_metadata_file(const fs::path& folder, const json& metadata, const char* key) {
  json sealed = metadata.is_object() ? metadata : json::object();
  sealed.erase(own_key);
  sealed[checksum_key] = checksum_of_file(folder / index_name);
  sealed[own_key] = hex(hash_text(text_of(sealed)));
  write_file(metadata_path(folder), text_of(sealed), key);
}

void require_intact_index(const fs::path& folder) {
  const fs::path index = folder / index_name;
  // its reader reports that
  if (!read_or_damaged(index, [&] { return file_exists(index.string()); })) return;
  if (sealed_metadata(folder).at(checksum_key) !=
      read_or_damaged(index, [&] { return checksum_of_file(index); }))
    fail_damaged("{}: is damaged: its bytes do not have the checksum that {} has of them; {}", index.string(),
                 config::checkpoint_metadata_file, advice);
}

Index read_intact_index(const fs::path& folder) {
  require_intact_index(folder);
  return read_index(folder / index_name);
}

void require_same_metadata(const fs::path& folder, const json& metadata) {
  json sealed = sealed_metadata(folder);
  sealed.erase(checksum_key);
  sealed.erase(own_key);
  if (sealed != metadata)
    fail_damaged("{}: was changed: it is not what {} has of it; {}", metadata_path(folder).string(),
                 index_name, advice);
}

bool require_intact_metadata(const fs::path& folder) {
  json sealed = sealed_metadata(folder);
  if (!sealed.contains(own_key)) return false;
  const std::string text = text_of(sealed);
  const json own = std::exchange(sealed[own_key], nullptr);
  sealed.erase(own_key);
  if (own != hex(hash_text(text_of(sealed))) || text != text_of_file(metadata_path(folder).string()))
    fail_damaged("{}: is damaged: its text does not have the checksum that it has of itself; {}",
                 metadata_path(folder).string(), advice);
  return true;
}

std::uint64_t checksum_of(const PosixFile& file, std::int64_t offset, std::int64_t count,
                          std::uint64_t seed) {
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(count, checksum_block)));
  for (std::int64_t done = 0; done < count; done += checksum_block) {
    const std::int64_t bytes = std::min(checksum_block, count - done);
    file.read_at(block.data(), bytes, offset + done);
    seed = hash_bytes(block.data(), static_cast<std::size_t>(bytes), seed);
  }
  return seed;
}

std::uint64_t frame_checksum(const PosixFile& file, std::span<const PieceRow> rows) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;  // first byte, and the one after the last
  for (const PieceRow& row : rows) pieces.emplace_back(row.byte_offset, row.byte_offset + row.bytes());
  const std::int64_t size = file.size();
  pieces.emplace_back(size, size);
  std::ranges::sort(pieces);
  std::uint64_t sum = 0;
  std::int64_t covered = 0;
  for (const auto& [begin, end] : pieces) {
    if (begin > covered) sum = checksum_of(file, covered, begin - covered, sum);
    covered = std::max(covered, end);
  }
  return sum;
}

}  // namespace ztrain::checkpoint
