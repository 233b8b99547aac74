#include "config/hf/peft_config.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "config/adapters.hpp"
#include "config/hf/hf_json.hpp"
#include "files/file.hpp"
#include "files/safetensors.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A key that changes what PEFT's adapters compute, so that ztrain's are not the same. Its legal values are
/// null, false, and empty lists and tables.
struct Unsupported {
  const char *key, *what;
};
constexpr Unsupported unsupported[] = {
    {"rank_pattern", "ranks that differ between modules"},
    {"alpha_pattern", "scales that differ between modules"},
    {"lora_bias", "biases of adapters"},
    {"layer_replication", "layers that are there several times"},
    {"trainable_token_indices", "trained rows of an embedding"},
    {"alora_invocation_tokens", "adapters of some tokens alone"},
    {"use_qalora", "adapters of groups of inputs"},
    {"megatron_config", "layers of Megatron"},
    {"use_bdlora", "adapters in blocks"},
    {"arrow_config", "several adapters at once"},
    {"kasa_config", "singular values beside adapters"},
    {"monteclora_config", "drawn adapters"},
    {"velora_config", "compressed activations"},
};

/// Ways to draw adapters at which PEFT changes the weights beside them too.
constexpr const char* changed_bases[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

bool is_nothing(const json& value) {
  return value.is_null() || value == json(false) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void require_supported(const Members& m, const json& text) {
  const std::string type = m.string("peft_type", "");
  REQUIRE(type == "LORA", "{}: peft_type = \"{}\": ztrain has LORA alone", m.where(), type);
  for (const Unsupported& row : unsupported)
    REQUIRE(!text.contains(row.key) || is_nothing(text.at(row.key)), "{}: {} = {}: ztrain has no {}",
            m.where(), row.key, m.text(row.key), row.what);
  const std::string bias = m.string("bias", "none");
  REQUIRE(bias == "none", "{}: bias = \"{}\": ztrain trains adapters without biases of the model (\"none\")",
          m.where(), bias);
  if (!text.contains("init_lora_weights") || !text.at("init_lora_weights").is_string()) return;
  const std::string drawn = m.string("init_lora_weights", "");
  for (const char* changes : changed_bases)
    REQUIRE(
        !drawn.starts_with(changes),
        "{}: init_lora_weights = \"{}\": the adapters belong to weights that PEFT has changed, and not to "
        "those of the base model: save them converted (save_pretrained with "
        "path_initial_model_for_weight_conversion)",
        m.where(), drawn);
}

/// Returns the list of a key, or nothing if it is absent or no list of strings.
std::vector<std::string> strings(const json& text, const char* key) {
  std::vector<std::string> list;
  if (!text.contains(key) || !text.at(key).is_array()) return list;
  for (const json& entry : text.at(key))
    if (entry.is_string()) list.push_back(entry.get<std::string>());
  return list;
}

/// Names of the tensors beside adapter_config.json.
struct Held {
  std::set<std::string> modules;   ///< that have adapters; experts are not among them
  std::vector<std::string> whole;  ///< parameters of the model
};

Held held_in(const std::string& folder) {
  const fs::path path = fs::path(folder) / peft_weights_file;
  Held held;
  for (const SafeTensor& t : read_safetensors(PosixFile::open_to_read(path))) {
    REQUIRE(t.name.starts_with(peft_prefix), "{}: tensor {} does not begin with {}", path.string(), t.name,
            peft_prefix);
    const std::string name = t.name.substr(peft_prefix.size());
    REQUIRE(name.find(".lora_embedding_") == name.npos, "{}: tensor {}: ztrain has no adapters of embeddings",
            path.string(), t.name);
    if (name.find(".lora_") == name.npos)
      held.whole.push_back(name);
    else if (name.ends_with(lora_a_ending) && !names_experts(name))
      held.modules.insert(name.substr(0, name.size() - lora_a_ending.size()));
  }
  return held;
}

/// Returns the number of the layer that a module is of, or -1: the first part of its name that is a number.
std::int64_t layer_of(const std::string& module) {
  const std::size_t digit = module.find_first_of("0123456789", module.find(".layers."));
  return digit == module.npos ? -1 : std::stoll(module.substr(digit, 6));
}

/// Returns whether layers_to_transform, a number or a list of them, leaves out a layer.
bool leaves_out(const json& layers, std::int64_t layer) {
  if (layers.is_array()) return !layers.empty() && std::ranges::count(layers, json(layer)) == 0;
  return layers.is_number() && layers != json(layer);
}

/// Throws Error if a key says otherwise than the tensors beside it: PEFT would leave out some of them.
void require_agreement(const Members& m, const json& text, const Held& held) {
  const std::vector<std::string> targets = strings(text, "target_modules"),
                                 excluded = strings(text, "exclude_modules");
  const json none, layers = text.value("layers_to_transform", none);
  const bool lists = text.value("target_modules", none).is_array();
  for (const std::string& module : held.modules) {
    const auto means = [&](const std::string& entry) { return is_target(entry, module); };
    const char* key = lists && std::ranges::none_of(targets, means) ? "target_modules"
                      : std::ranges::any_of(excluded, means)        ? "exclude_modules"
                      : leaves_out(layers, layer_of(module))        ? "layers_to_transform"
                                                                    : nullptr;
    REQUIRE(key == nullptr, "{}: {} = {} leaves out {}, of which {} beside it holds an adapter", m.where(),
            key, m.text(key), module, peft_weights_file);
  }
  for (const std::string& name : strings(text, "modules_to_save"))
    REQUIRE(std::ranges::any_of(held.whole,
                                [&](const std::string& parameter) {
                                  return ("." + parameter).find(fmt::format(".{}.", name)) !=
                                         std::string::npos;
                                }),
            "{}: modules_to_save has {}, of which {} beside it holds no tensor", m.where(), name,
            peft_weights_file);
}

/// Returns entries of lora.targets that mean the modules that have adapters: PEFT's own if these are names,
/// else the whole name of each.
std::vector<std::string> targets_of(const json& text, const Held& held) {
  std::vector<std::string> targets = strings(text, "target_modules");
  const auto narrows = [&](const char* key) { return text.contains(key) && !is_nothing(text.at(key)); };
  if (targets.empty() || narrows("layers_to_transform") || narrows("exclude_modules"))
    targets.assign(held.modules.begin(), held.modules.end());
  for (std::string& name : strings(text, "target_parameters")) targets.push_back(std::move(name));
  std::ranges::sort(targets);
  return targets;
}

}  // namespace

bool is_peft_folder(const std::string& folder) {
  const auto has = [&](const char* name) { return file_exists(fs::path(folder) / name, "model.from"); };
  return has(peft_config_file) && !has(single_safetensors) && !has(safetensors_index_name);
}

PeftConfig read_peft_config(const std::string& folder) {
  PeftConfig config;
  config.file = (fs::path(folder) / peft_config_file).string();
  const json text = read_json(config.file);
  const Members m(config.file, text);
  require_supported(m, text);
  REQUIRE(file_exists(fs::path(folder) / peft_weights_file, "model.from"),
          "model.from: '{}' has no {}; save the adapters as safetensors", folder, peft_weights_file);
  config.base = m.string("base_model_name_or_path", "");
  config.lora.rank = m.integer("r", 8);
  config.lora.alpha = m.number("lora_alpha", 8);
  config.lora.dropout = m.number("lora_dropout", 0);
  config.lora.rslora = m.boolean("use_rslora", false);
  config.lora.dora = m.boolean("use_dora", false);
  REQUIRE(
      config.lora.rank > 0 && config.lora.alpha > 0 && config.lora.dropout >= 0 && config.lora.dropout < 1,
      "{}: r = {}, lora_alpha = {} and lora_dropout = {}: must be above 0, above 0, and from 0 to below 1",
      config.file, config.lora.rank, config.lora.alpha, config.lora.dropout);
  Held held = held_in(folder);
  require_agreement(m, text, held);
  config.lora.targets = targets_of(text, held);
  config.whole = std::move(held.whole);
  REQUIRE(!config.lora.targets.empty(), "{}: has no adapters beside it", config.file);
  return config;
}

}  // namespace ztrain::config
