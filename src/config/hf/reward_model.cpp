#include "config/hf/reward_model.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/hf_json.hpp"
#include "config/hf/peft_config.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;

constexpr std::string_view reward_ending = "ForSequenceClassification";
constexpr std::array families_without = {"apertus", "granite", "olmoe"};

bool names_reward_class(const json& config) {
  if (!config.contains("architectures") || !config["architectures"].is_array()) return false;
  return std::ranges::any_of(config["architectures"], [](const json& name) {
    return name.is_string() && name.get_ref<const std::string&>().ends_with(reward_ending);
  });
}

bool ends_answers(std::int64_t token, const std::vector<std::int32_t>& ends) {
  return std::ranges::count(ends, token) > 0;
}

void require_one_value(const Members& c) {
  const auto labels = c.has("id2label") && c.at("id2label").is_object()
                          ? static_cast<std::int64_t>(c.at("id2label").size())
                          : c.integer("num_labels", 2);
  REQUIRE(labels == 1,
          "{}: num_labels (id2label) is {}: a reward model has 1, and ztrain trains no other classifiers",
          c.where(), labels);
  const std::int64_t pad = c.integer("pad_token_id", -1);
  REQUIRE(
      !ends_answers(pad, c.tokens(ends_key)),
      "{}: pad_token_id = {} is among eos_token_id: transformers then reads the value of the token before an "
      "answer's end, and ztrain that of the end: set pad_token_id to a token that ends no answer, or to null",
      c.where(), pad);
}

}  // namespace

std::string reward_class(const Architecture& a) {
  if (std::ranges::count(families_without, a.family) > 0) return "";
  if (a.family == "gemma3") return "Gemma3TextForSequenceClassification";
  std::string name(a.hf_class);
  for (const std::string_view head : {"ForCausalLM", "LMHeadModel"})
    if (name.ends_with(head)) name.resize(name.size() - head.size());
  return name.append(reward_ending);
}

bool is_reward_folder(const std::string& folder) {
  const auto path = std::filesystem::path(folder) / peft_config_file;
  if (is_peft_folder(folder)) {
    const json text = read_json(path.string());
    return Members(path.string(), text).string("task_type", "") == "SEQ_CLS";
  }
  const std::string file = hf_config_path(folder);
  if (!file_exists(file, "model.from")) return false;
  const json text = read_hf_config(file);
  if (!names_reward_class(text)) return false;
  require_one_value(Members(file, text));
  return true;
}

std::vector<std::string> settings_to_read(const std::string& folder, const std::string& base) {
  std::vector<std::string> words{R"(data.train=["none"])", "data.sequence=4",
                                 "batch.global=1",         "run.steps=1",
                                 "model.from=" + folder,   "model.base=" + base};
  const bool rewards = is_reward_folder(folder) || (!base.empty() && is_reward_folder(base));
  if (rewards) words.insert(words.end(), {"preference.loss_type=reward", "experts.balance=none"});
  return words;
}

void write_reward_head(const Architecture& a, const Model& model, json& config) {
  const std::string name = reward_class(a);
  REQUIRE(!name.empty(), "model.family = \"{}\": transformers has no class for reward models of it",
          a.family);
  config["architectures"] = {name};
  config["num_labels"] = 1;
  config["id2label"] = {{"0", "LABEL_0"}};
  config["label2id"] = {{"LABEL_0", 0}};
  config["problem_type"] = "regression";
  std::vector<std::int32_t> ends = Members("config.json", config).tokens(ends_key);
  ends.insert(ends.end(), model.ends.begin(), model.ends.end());
  const std::int64_t pad = Members("config.json", config).integer("pad_token_id", -1);
  if (ends_answers(pad, ends)) config["pad_token_id"] = nullptr;
}

}  // namespace ztrain::config
