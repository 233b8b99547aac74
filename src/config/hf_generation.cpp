#include "config/hf_generation.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;

json read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.good()) return json::object();
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  json parsed = json::parse(text, nullptr, false);
  REQUIRE(parsed.is_object(), "{}: not a valid JSON object", path.string());
  return parsed;
}

/// One id or a list of them.
std::vector<std::int32_t> tokens(const json& object, const char* key, const std::string& where) {
  if (!object.contains(key) || object.at(key).is_null()) return {};
  const json& value = object.at(key);
  std::vector<std::int32_t> ids;
  for (const json& id : value.is_array() ? value : json::array({value})) {
    REQUIRE(id.is_number_integer(), "{}: {} = {}: must be a token id or a list of them", where, key,
            value.dump().substr(0, 100));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace

HfGeneration hf_generation(const std::string& folder) {
  const std::filesystem::path at(folder);
  const json config = read(at / "config.json");
  HfGeneration found;
  for (const char* name : {"generation_config.json", "config.json"})
    if (found.eos.empty()) found.eos = tokens(read(at / name), "eos_token_id", (at / name).string());
  for (const char* key : {"max_position_embeddings", "n_positions"})
    if (found.max_positions == 0 && config.contains(key) && config.at(key).is_number_integer())
      found.max_positions = config.at(key).get<std::int64_t>();
  return found;
}

}  // namespace ztrain::config
