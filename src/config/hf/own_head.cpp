#include "config/hf/own_head.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/architectures.hpp"
#include "files/file.hpp"
#include "files/safetensors.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t piece_bytes = 1 << 16, most_pieces = 64;

struct Found {
  PosixFile file;
  SafeTensor tensor;
};

/// Returns the file that holds a tensor: the one that the index names, or the only one.
fs::path file_of(const fs::path& folder, const std::string& tensor) {
  const fs::path single = folder / single_safetensors, index = folder / safetensors_index_name;
  if (file_exists(single.string())) return single;
  const auto files = parse_safetensors_index(read_file(index, largest_safetensors_header), index.string());
  const auto at = files.find(tensor);
  return at == files.end() ? fs::path() : folder / at->second;
}

std::optional<Found> find(const fs::path& folder, const std::string& tensor) {
  const fs::path path = file_of(folder, tensor);
  if (path.empty()) return std::nullopt;
  PosixFile file = PosixFile::open_to_read(path);
  const auto tensors = read_safetensors(file);
  const auto at = std::ranges::find(tensors, tensor, &SafeTensor::name);
  if (at == tensors.end()) return std::nullopt;
  return Found{std::move(file), *at};
}

bool differ(const Found& head, const Found& embedding) {
  const std::int64_t bytes = head.tensor.bytes;
  if (head.tensor.shape != embedding.tensor.shape || head.tensor.dtype_name != embedding.tensor.dtype_name)
    return false;
  const std::int64_t step = std::max(piece_bytes, bytes / most_pieces);
  std::vector<std::byte> one(piece_bytes), other(piece_bytes);
  for (std::int64_t at = 0; at < bytes; at += step) {
    const std::int64_t count = std::min(piece_bytes, bytes - at);
    head.file.read_at(one.data(), count, head.tensor.begin + at);
    embedding.file.read_at(other.data(), count, embedding.tensor.begin + at);
    if (!std::equal(one.begin(), one.begin() + count, other.begin())) return true;
  }
  return false;
}

}  // namespace

bool has_own_head(const std::string& folder, const Architecture& architecture) {
  std::string name = embedding_weight;
  for (const FileTensor& row : architecture.files)
    if (row.parameter == name) name = row.tensor;
  try {
    const auto head = find(folder, head_weight);
    for (const std::string& of : {name, name.substr(name.find('.') + 1)})
      if (const auto embedding = find(folder, of)) return head && differ(*head, *embedding);
    return false;
  } catch (const Error&) {
    return false;  // Reading the weights says what is wrong with them.
  }
}

}  // namespace ztrain::config
