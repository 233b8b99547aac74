// Model, data and adapters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/preference_loss.hpp"
#include "config/fields/presets.hpp"
#include "config/fields/value.hpp"
#include "config/text/suggest.hpp"
#include "translate/conversions.hpp"

namespace ztrain::translate {
namespace {

constexpr const char* not_given = "off there, as here without the key";

/// Returns the preset whose name the model's name begins with, or "".
std::string preset_of(std::string_view model) {
  std::string wanted = plain(model.substr(model.rfind('/') + 1)), best;
  if (wanted.starts_with("meta")) wanted.erase(0, 4);
  for (const std::string& preset : config::model_preset_names())
    if (preset != "custom" && wanted.starts_with(plain(preset)) && preset.size() > best.size()) best = preset;
  return best;
}

Taken model(const Setting& s, const Context& all) {
  const std::string name = s.value.word;
  const bool local = name.starts_with('.') || name.starts_with('/') || name.starts_with('~');
  const std::string folder = local ? name : "models/" + name.substr(name.rfind('/') + 1);
  const std::string preset = preset_of(name);
  std::string note = local ? std::string("this folder")
                           : fmt::format("a folder: `hf download {} --local-dir {}` makes it", name, folder);
  if (!preset.empty())
    note += fmt::format("; where it is not at hand, model.preset = \"{}\" says what the model is", preset);
  const Value* adapters_there = all.find("lora_model_dir");
  const bool beside = adapters_there != nullptr && adapters_there->kind != Value::Kind::nothing;
  return put(beside ? "model.base" : "model.from", config::toml_string(folder), note);
}

Taken assets(const Setting& s, const Context& all) {
  return all.on("initial_load_in_hf")
             ? put("model.from", s.value.toml)
             : leave("it is read for the tokenizer there: tools/prepare_data.py takes it", Fate::always);
}

Taken flavor(const Setting& s, const Context& all) {
  const Value* family = all.find("model.name");
  const std::string preset = preset_of((family == nullptr ? "" : family->word) + s.value.word);
  return preset.empty()
             ? leave("no preset has this name: give model.preset or the dims of [model]", Fate::open)
             : put("model.preset", config::toml_string(preset));
}

Taken with_flavor(const Setting&, const Context& all) {
  return leave(all.find("flavor") != nullptr ? "it belongs to the flavor" : "model.from says the family",
               Fate::always);
}

/// Token files have the name of their data set.
Taken data(const Setting& s, const Context&) {
  Taken taken{.settings = {}, .note = "token files, which tools/prepare_data.py makes of it"};
  for (std::string name : s.value.words) {
    name = name.substr(name.rfind('/') + 1);
    name = name.substr(0, name.find('.'));
    std::ranges::replace_if(
        name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    taken.settings.emplace_back(part::data, fmt::format("\"data/{}.h5\"", name));
  }
  return taken;
}

/// Returns the loss on answers of this name, "" if there is none. axolotl calls the first one dpo.
std::string_view loss_of(std::string_view name) {
  if (name == "dpo") return "sigmoid";
  for (const PairLossRow& row : pair_losses)
    if (row.name == name) return row.name;
  return "";
}

Taken loss_type(const Setting& s, const Context&) {
  if (s.value.is("nll")) return leave("the loss of the next token", Fate::always);
  if (s.value.words.size() > 1) return leave("a run has one of them", Fate::open);
  const std::string_view loss = loss_of(s.value.words.empty() ? "" : s.value.words.front());
  return loss.empty() ? leave("no loss of this name")
                      : put("preference.loss_type", fmt::format("\"{}\"", loss));
}

Taken reward_model(const Setting& s, const Context&) {
  if (!s.value.on()) return leave("no reward model is trained", Fate::always);
  return put("preference.loss_type", "\"reward\"");
}

/// TRL's RewardConfig has no other name of its own.
Taken centered_rewards(const Setting& s, const Context& all) {
  Taken taken = put("preference.center_rewards_coefficient", s.value.toml);
  if (all.find("reward_model") == nullptr) taken.settings.emplace_back("preference.loss_type", "\"reward\"");
  return taken;
}

Taken smoothing_of_pairs(const Setting& s, const Context&) {
  return put("preference.label_smoothing", s.value.toml);
}

bool compares_answers(const Context& all) {
  for (const char* name : {"loss_type", "rl"})
    if (const Value* value = all.find(name); value != nullptr && !value->words.empty())
      return !loss_of(value->words.front()).empty();
  const Value* const rewards = all.find("reward_model");
  return (rewards != nullptr && rewards->on()) || all.find("center_rewards_coefficient") != nullptr;
}

Taken packing(const Setting& s, const Context& all) {
  Taken taken = put("data.packing", "\"documents\"");
  if (s.value.on() || s.value.is("auto")) return taken;
  const bool pairs = compares_answers(all);
  taken.settings.emplace_back("data.max_documents", pairs ? "2" : "1");
  taken.note = fmt::format("a sequence holds one {0}, so that batches count {0}s; packing takes fewer steps",
                           pairs ? "pair" : "document");
  return taken;
}

Taken long_documents(const Setting& s, const Context&) {
  if (s.value.is("keep_start") || s.value.is("truncate")) return put("data.long_documents", "\"truncate\"");
  return s.value.is("drop") ? put("data.long_documents", "\"drop\"")
                            : leave("data.long_documents is truncate (the first tokens stay), split or drop");
}

Taken more_tokens(const Setting&, const Context&) {
  return leave("model.add_tokens counts them, and the tokenizer of tools/prepare_data.py has them",
               Fate::open);
}

Taken by_length(const Setting& s, const Context&) {
  return leave(s.value.on() ? "packed documents leave no room for padding" : not_given, Fate::always);
}

Taken held_out(const Setting& s, const Context&) {
  return s.value.number() < 1 ? put("data.validation_fraction", s.value.toml)
                              : leave("data.validation_fraction is a share, this a number of rows");
}

bool has_adapters(const Context& all) {
  const Value* adapter = all.find("adapter");
  return all.on("use_peft") || (adapter != nullptr && (adapter->is("lora") || adapter->is("qlora")));
}

Taken adapters(const Setting& s, const Context& all) {
  if (!has_adapters(all)) return leave("there are no adapters", Fate::always);
  if (s.value.is("all-linear"))
    return leave("without lora.targets all linear layers have adapters", Fate::always);
  return put(std::string(config::find_setting(s.name)->key), s.value.toml);
}

Taken use_adapters(const Setting& s, const Context&) {
  if (s.value.is("false")) return leave(not_given, Fate::always);
  return leave("lora.rank above 0 says it", Fate::always);
}

/// TRL keeps scales in fp32 unless use_bnb_nested_quant says otherwise; axolotl quantises them too.
Taken in_4_bits(const Setting& s, const Context& all) {
  if (!s.value.on()) return leave(not_given, Fate::always);
  if (!has_adapters(all)) return leave("lora.quantization needs adapters (lora.rank)", Fate::open);
  const Value* kind = all.find("bnb_4bit_quant_type");
  Taken taken =
      put("lora.quantization", kind != nullptr ? config::toml_string(kind->words.front()) : "\"nf4\"");
  if (all.on("use_peft") && !all.on("use_bnb_nested_quant"))
    taken.settings.emplace_back("lora.double_quantization", "false");
  return taken;
}

Taken in_8_bits(const Setting& s, const Context& all) {
  if (!s.value.on()) return leave(not_given, Fate::always);
  return has_adapters(all) ? put("lora.quantization", "\"int8\"", "rows of weights, without outliers")
                           : leave("lora.quantization needs adapters (lora.rank)", Fate::open);
}

Taken with_4_bits(const Setting&, const Context&) {
  return leave("load_in_4bit takes it", Fate::always);
}

Taken computed_with(const Setting&, const Context&) {
  return leave("weights are dequantised to precision.parameters", Fate::always);
}

Taken all_linear(const Setting&, const Context&) {
  return leave("without lora.targets all linear layers have adapters", Fate::always);
}

/// Regular expressions of axolotl that are more than a name are left to the user.
Taken trained(const Setting& s, const Context&) {
  std::vector<std::string> patterns;
  for (std::string name : s.value.words) {
    if (name.starts_with('^')) name.erase(0, 1);
    if (name.ends_with('$')) name.pop_back();
    if (name.find_first_of("+()|\\*[") != std::string::npos)
      return leave("model.trainable has patterns as a shell's, no regular expressions", Fate::open);
    patterns.push_back(config::toml_string(fmt::format("*{}*", name)));
  }
  return put("model.trainable", fmt::format("[{}]", fmt::join(patterns, ", ")));
}

Taken sparse_mode(const Setting& s, const Context&) {
  if (s.value.is("dense")) return leave("all blocks, as here without the key", Fate::always);
  return put("sparse_attention.mode", s.value.toml);
}

/// Blocks of DeepSpeed have 16 tokens by default.
Taken sparse_block(const Setting& s, const Context& all) {
  const Value* mode = all.find("sparse_attention.mode");
  if (mode != nullptr && mode->is("dense")) return leave("all blocks are there", Fate::always);
  if (std::fmod(s.value.number(), 64) == 0) return put("sparse_attention.block", s.value.toml);
  return leave("blocks are multiples of 64 tokens here: choose their numbers anew", Fate::open);
}

Taken windows_of_blocks(const Setting& s) {
  return s.value.words.size() == 1 ? put("sparse_attention.num_local_blocks", s.value.words.front())
                                   : leave("all windows have sparse_attention.num_local_blocks");
}

Taken global_blocks(const Setting& s) {
  for (std::size_t i = 0; i < s.value.words.size(); ++i)
    if (s.value.words[i] != fmt::to_string(i))
      return leave(
          "only the first blocks can be global here (sparse_attention.num_global_blocks), or those of "
          "a layout in a file (sparse_attention.layout)");
  return put("sparse_attention.num_global_blocks", fmt::to_string(s.value.words.size()));
}

/// DeepSpeed reads some of the numbers of blocks in each mode, and ignores the others.
Taken number_of_blocks(const Setting& s, const Context& all) {
  constexpr std::pair<std::string_view, std::string_view> read_in[] = {
      {"fixed", "num_local_blocks num_global_blocks"},
      {"variable", "num_random_blocks local_window_blocks global_block_indices"},
      {"bigbird", "num_random_blocks num_sliding_window_blocks num_global_blocks"},
      {"bslongformer", "num_sliding_window_blocks global_block_indices"},
      {"dense", ""}};
  const std::string member = s.name.substr(s.name.rfind('.') + 1);
  if (const Value* given = all.find("sparse_attention.mode"))
    for (const auto& [mode, names] : read_in)
      if (given->is(mode) && !config::names_have(names, member))
        return leave(fmt::format("it is not read in mode {}", mode), Fate::always);
  if (member == "local_window_blocks") return windows_of_blocks(s);
  if (member == "global_block_indices") return global_blocks(s);
  return put(fmt::format("sparse_attention.{}", member), s.value.toml);
}

Taken one_direction(const Setting& s, const Context&) {
  constexpr const char* causal = "a query sees no later keys here";
  return s.value.is("unidirectional") ? leave(causal, Fate::always) : leave(causal);
}

Taken one_layout(const Setting& s, const Context&) {
  return s.value.number() <= 1 && !s.value.is("true") ? leave("off there, as here", Fate::always)
                                                      : leave("all heads have the same layout");
}

constexpr Conversion model_rows[] = {
    {"sparse_attention.mode", sparse_mode, "`dense` is `\"none\"`"},
    {"sparse_attention.block", sparse_block, "only multiples of 64 tokens"},
    {"local_window_blocks", number_of_blocks, "a list of one number; only in mode `variable`"},
    {"global_block_indices", number_of_blocks,
     "0, 1, ...: as many of the first blocks; only in modes `variable` and `bslongformer`"},
    {"num_local_blocks", number_of_blocks, "only in mode `fixed`"},
    {"num_global_blocks", number_of_blocks, "only in modes `fixed` and `bigbird`"},
    {"num_random_blocks", number_of_blocks, "only in modes `variable` and `bigbird`"},
    {"num_sliding_window_blocks", number_of_blocks, "only in modes `bigbird` and `bslongformer`"},
    {"sparse_attention.attention", one_direction, "`unidirectional`, always"},
    {"different_layout_per_head num_different_global_patterns num_differnt_global_patterns", one_layout,
     "all heads have the same layout"},
    {"model_name_or_path base_model", model,
     "`hf download` makes it; `model.preset` where it is not at hand"},
    {"hf_assets_path", assets, "if `initial_load_in_hf`"},
    {"flavor", flavor},
    {"model.name model_type", with_flavor, "the preset, or the folder, says the family"},
    {"dataset_name dataset dataset_path datasets.path pretraining_dataset.path", data},
    {"packing sample_packing batch_flattening padding_free", packing,
     "`\"documents\"`; without packing also `data.max_documents = 1`: batches then count documents; of pairs "
     "of answers 2"},
    {"loss_type rl", loss_type, "one; axolotl's `dpo` is `\"sigmoid\"`; GRPO: no"},
    {"reward_model", reward_model, "`\"reward\"`"},
    {"center_rewards_coefficient", centered_rewards, "with `preference.loss_type = \"reward\"`"},
    {"label_smoothing dpo_label_smoothing", smoothing_of_pairs, "of TRL's losses on pairs"},
    {"truncation_mode excess_length_strategy", long_documents},
    {"tokens", more_tokens},
    {"group_by_length", by_length, "not needed"},
    {"val_set_size test_split_size", held_out, "shares alone"},
    {"lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters", adapters},
    {"use_peft adapter", use_adapters},
    {"load_in_4bit", in_4_bits, "`\"nf4\"` unless `bnb_4bit_quant_type` says otherwise"},
    {"load_in_8bit", in_8_bits, "`\"int8\"`: rows of weights, without outliers"},
    {"bnb_4bit_quant_type use_bnb_nested_quant", with_4_bits},
    {"bnb_4bit_compute_dtype", computed_with},
    {"lora_target_linear", all_linear},
    {"modules_to_save lora_modules_to_save unfrozen_parameters", trained},
};

}  // namespace

std::string plain(std::string_view text) {
  std::string result;
  for (const unsigned char c : text)
    if (std::isalnum(c) != 0 || c == '.') result += static_cast<char>(std::tolower(c));
  return result;
}

std::span<const Conversion> model_conversions() {
  return model_rows;
}

}  // namespace ztrain::translate
