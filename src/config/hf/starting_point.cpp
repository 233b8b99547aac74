#include "config/hf/starting_point.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/preference_loss.hpp"
#include "config/fields/model_keys.hpp"
#include "config/fields/value.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/hf_json.hpp"
#include "config/hf/own_head.hpp"
#include "config/hf/peft_config.hpp"
#include "config/hf/reward_model.hpp"
#include "config/validate/refusals.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Returns the command that a deck with "meta-llama/Llama-3.1-8B" needs first. A folder that is there, or
/// that stands below the root of all folders, is no organisation of the hub.
std::string download(const fs::path& folder) {
  const fs::path above = folder.parent_path();
  std::error_code unknown;
  const bool may_be_name = !fs::exists(above, unknown) && above.parent_path() != above.root_path();
  return fmt::format(
      "the files of a model of the Hugging Face hub are downloaded first: `hf download {} --local-dir '{}'`",
      may_be_name ? (above.filename() / folder.filename()).string() : "ORGANISATION/MODEL", folder.string());
}

/// Returns the path of an entry of the folder that satisfies the condition; "" if there is none.
template <class Condition>
std::string entry_of(const fs::path& folder, const Condition& condition) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (condition(entry->path())) return entry->path().string();
  return "";
}

json read_metadata(const std::string& path) {
  json parsed = read_json(path, largest_metadata);
  REQUIRE(parsed.contains("deck") && parsed["deck"].is_string(),
          "{}: holds no deck: it is damaged, or not of a run's checkpoint", path);
  return parsed;
}

toml::table deck_table(const json& metadata, const std::string& file) {
  return parse_toml(metadata["deck"].get_ref<const std::string&>(), fmt::format("the deck in {}", file));
}

StartingPoint from_checkpoint(const std::string& folder) {
  StartingPoint point;
  point.file = (fs::path(folder) / checkpoint_metadata_file).string();
  const json metadata = read_metadata(point.file);
  if (metadata.contains("model_from") && metadata["model_from"].is_string())
    point.origin = metadata["model_from"].get<std::string>();
  point.positions = Members(point.file, metadata).integer("model_positions", 0);
  point.ends = Members(point.file, metadata).tokens(ends_key);
  const toml::table table = deck_table(metadata, point.file);
  Deck saved;
  for (const Field& field : fields()) {
    const std::string section = field.section();
    if (section != "model" && section != "lora") continue;
    const toml::node* value = table[section][field.member()].node();
    if (value != nullptr)
      assign(field, *value, saved, point.file);
    else
      assign(field, field.standard, saved, "default");
    if (shapes_model(field)) point.settings.emplace_back(field.key, render(field, saved));
  }
  if (saved.lora.rank > 0) point.adapters = saved.lora;
  point.rewards = is_reward_loss(table["preference"]["loss_type"].value_or(std::string("none")));
  return point;
}

/// Reads PEFT's folder, and the model that its adapters belong to.
StartingPoint from_peft(const std::string& folder, bool trusted, const std::string& given) {
  const PeftConfig config = read_peft_config(folder);
  REQUIRE(!config.base.empty() || !given.empty(),
          "{}: base_model_name_or_path is missing: give the folder of the model that the adapters belong to "
          "with model.base",
          config.file);
  const std::string base = fs::absolute(given.empty() ? config.base : given).lexically_normal();
  std::error_code unknown;
  REQUIRE(
      !given.empty() || fs::exists(base, unknown),
      "{}: base_model_name_or_path = \"{}\": there is no such folder: give the folder of the model that the "
      "adapters belong to with model.base; {}",
      config.file, config.base, download(config.base));
  const auto require_model = [&](bool holds_adapters) {
    REQUIRE(!holds_adapters,
            "{}: the adapters belong to '{}', which holds adapters itself: give a model with model.base",
            config.file, base);
  };
  require_model(is_peft_folder(base));  // before it is opened: folders may name each other
  StartingPoint point = starting_point(base, trusted);
  require_model(point.adapters || !point.base.empty());
  point.file = config.file;
  point.adapters = config.lora;
  point.base = base;
  point.whole = config.whole;
  point.rewards = point.rewards || is_reward_folder(folder);
  return point;
}

const Architecture& architecture_of(const Settings& settings) {
  const auto family =
      std::ranges::find(settings, "model.family", [](const auto& setting) { return setting.first; });
  const std::string& quoted = family->second;
  return find_architecture(quoted.substr(1, quoted.size() - 2));
}

}  // namespace

std::string other_format_in(const fs::path& folder) {
  const auto find = [&](const char* begin, const char* end) {
    return entry_of(folder, [=](const fs::path& path) {
      const std::string name = path.filename().string();
      return name.starts_with(begin) && name.ends_with(end);
    });
  };
  constexpr const char* instead =
      "give the folder of the same model that has config.json and safetensors files";
  const std::string gguf = find("", ".gguf"), original = find("consolidated.", "");
  if (!gguf.empty() && find("", ".safetensors").empty())
    return fmt::format("it has weights for llama.cpp alone ('{}'): {}", gguf, instead);
  if (!original.empty() && find("model", ".safetensors").empty())
    return fmt::format("it has the files of the model's authors alone ('{}'): {}", original, instead);
  return "";
}

std::string instead_of_model(const fs::path& folder) {
  std::error_code error;
  const fs::path above = folder.parent_path();
  if (!fs::exists(folder, error))
    return fmt::format("there is no such folder{}; {}",
                       fs::exists(above, error) ? "" : fmt::format(", nor '{}'", above.string()),
                       download(folder));
  if (!fs::is_directory(folder, error)) return "it is no folder, or cannot be read";
  if (fs::exists(folder / "index.h5", error)) return "it is a checkpoint that has lost its own: give another";
  const std::string checkpoint = entry_of(
      folder, [&](const fs::path& path) { return fs::exists(path / checkpoint_metadata_file, error); });
  if (!checkpoint.empty())
    return fmt::format("it holds checkpoints: give one of them, such as '{}'", checkpoint);
  const std::string other = other_format_in(folder);
  return other.empty() ? "give the folder of a checkpoint or of a model" : other;
}

void require_base_of_adapters(const Deck& deck) {
  if (deck.lora.rank != 0 && deck.model.from.empty() && !deck.lora.random_base)
    refuse(deck, "lora.rank model.from lora.random_base");
}

bool is_checkpoint(const std::string& folder) {
  return !file_exists(hf_config_path(folder), "model.from") &&
         file_exists(fs::path(folder) / checkpoint_metadata_file, "model.from");
}

bool upcycle(const std::string& family, Settings& settings) {
  const auto mixture = std::ranges::find(architectures(), family, &Architecture::family);
  const Architecture& dense = architecture_of(settings);
  if (mixture == architectures().end() || mixture->dense != dense.family) return false;
  const auto width = std::ranges::find(settings, "model.intermediate_size", &Settings::value_type::first);
  const std::string of_experts = width->second;
  std::erase_if(settings, [&](const auto& setting) {
    return setting.first == "model.family" ||
           (find_key(*mixture, setting.first) != nullptr && find_key(dense, setting.first) == nullptr);
  });
  settings.emplace_back("model.moe_intermediate_size", of_experts);
  return true;
}

StartingPoint starting_point(const std::string& folder, bool trusted, const std::string& base) {
  if (is_checkpoint(folder)) return from_checkpoint(folder);
  if (is_peft_folder(folder)) return from_peft(folder, trusted, base);
  const std::string file = hf_config_path(folder);
  REQUIRE(file_exists(file, "model.from"),
          "model.from: '{}' is neither a Hugging Face model nor a checkpoint: it has no config.json and no "
          "{}; {}",
          folder, checkpoint_metadata_file, instead_of_model(folder));
  StartingPoint point{file, folder, 0, hf_eos_if_valid(folder), hf_settings(folder, trusted), std::nullopt};
  point.positions = hf_positions(folder);
  point.rewards = is_reward_folder(folder);
  const auto tied = std::ranges::find(
      point.settings, std::pair<std::string, std::string>("model.tie_word_embeddings", "true"));
  if (tied != point.settings.end() && has_own_head(folder, architecture_of(point.settings))) {
    tied->second = "false";
    point.own_head = true;
  }
  return point;
}

}  // namespace ztrain::config
