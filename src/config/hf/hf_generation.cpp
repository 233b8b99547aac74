#include "config/hf/hf_generation.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/hf/hf_json.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// An object without members where there is no such file.
json read_if_there(const fs::path& path) {
  return file_exists(path.string()) ? read_json(path.string()) : json::object();
}

}  // namespace

std::vector<std::int32_t> hf_eos(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = fs::path(folder) / name;
    const json parsed = read_if_there(path);
    auto found = Members(path.string(), parsed).tokens("eos_token_id");
    if (!found.empty()) return found;
  }
  return {};
}

std::int64_t hf_positions(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  const json parsed = read_if_there(path);
  const Members config(path.string(), parsed);
  const std::int64_t older = config.integer("n_positions", 0);
  return std::max<std::int64_t>(config.integer("max_position_embeddings", older), 0);
}

}  // namespace ztrain::config
