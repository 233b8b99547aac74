#include "config/hf/special_tokens.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/hf_json.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;
using TokenIds = std::vector<std::int32_t>;

constexpr const char* special_token_keys[] = {"bos_token_id", ends_key, "pad_token_id"};

/// Returns null, one id, or a list of them.
json value_of_ids(const TokenIds& ids) {
  if (ids.size() == 1) return ids.front();
  return ids.empty() ? json(nullptr) : json(ids);
}

TokenIds ends_of_folder(const Model& m) {
  return m.from.empty() ? TokenIds{} : hf_eos_if_valid(m.from);
}

/// Returns the tokens of Model::ends that its folder does not list.
TokenIds trained_ends(const Model& m) {
  const TokenIds own = ends_of_folder(m);
  TokenIds added = m.ends;
  std::erase_if(added, [&](std::int32_t id) { return std::ranges::count(own, id) > 0; });
  return added;
}

/// Returns the ends that an object lists, or if it lists none those of the model's folder, and then `added`.
json joined_ends(const Model& m, const json& object, const TokenIds& added) {
  TokenIds ends;
  try {
    ends = Members("", object).tokens(ends_key);
  } catch (const Error&) {
    ends.clear();  // Only a list of ids is kept.
  }
  if (ends.empty()) ends = ends_of_folder(m);
  for (const std::int32_t id : added)
    if (std::ranges::count(ends, id) == 0) ends.push_back(id);
  return value_of_ids(ends);
}

}  // namespace

void write_special_tokens(const Model& m, const json* original, json& config) {
  for (const char* key : special_token_keys) {
    if (original == nullptr)
      config[key] = nullptr;
    else if (original->contains(key))
      config[key] = (*original)[key];
  }
  const TokenIds added = trained_ends(m);
  if (!added.empty()) config[ends_key] = joined_ends(m, config, added);
}

std::string generation_config(const Model& m, const std::string& config,
                              const std::optional<std::string>& own) {
  const TokenIds added = trained_ends(m);
  if (own && added.empty()) return *own;
  json generation = json::object();
  if (own) {
    try {
      generation = parse_json(*own, "generation_config.json");
    } catch (const Error&) {
      return *own;  // Nothing reads such a file.
    }
    if (!generation.is_object()) return *own;
    generation[ends_key] = joined_ends(m, generation, added);
  } else {
    const json all = parse_json(config);
    for (const char* key : special_token_keys)
      if (all.contains(key) && !all[key].is_null()) generation[key] = all[key];
    if (generation.empty()) return "";
  }
  return json_text(generation, 2) + "\n";
}

}  // namespace ztrain::config
