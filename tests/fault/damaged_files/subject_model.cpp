// Models from elsewhere: config.json, generation_config.json, safetensors files and their index.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "bytes.hpp"
#include "case.hpp"
#include "config/text/load.hpp"
#include "json_mutation.hpp"
#include "safetensors_mutation.hpp"

namespace ztrain::damaged_files {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const Words generate_model{"generate", "hf", "--prompt-ids", "1,2,3", "--tokens", "2", "--dtype", "fp32"};

DeckKeys deck_of_model() {
  return {{"data.train", R"(["text.txt"])"},
          {"data.sequence", "16"},
          {"data.validation_fraction", "0"},
          {"model.from", R"("hf")"},
          {"batch.global", "2"},
          {"precision.preset", R"("fp32")"},
          {"run.steps", "1"},
          {"run.output", R"("run")"},
          {"checkpoint.interval", "-1"}};
}

void change(Case& c) {
  const auto files = files_below("hf");
  const fs::path& file = c.random.pick(files);
  if (c.random.one_in(8)) return c.changed(replace_file(file, files, c.random));
  if (file.extension() == ".safetensors") return c.changed(damage_safetensors(file, c.random));
  if (c.random.one_in(6)) return c.changed(damage_file(file, c.random));
  std::string text = read_bytes(file);
  const std::string what = damage_json(text, c.random);
  write_bytes(file, text);
  c.changed(fmt::format("{}: {}", file.filename().string(), what));
}

/// The weights that were accepted lie soundly in their files.
void judge_weights(Case& c) {
  for (const fs::path& file : files_below("hf"))
    if (file.extension() == ".safetensors")
      if (const std::string wrong = wrong_in_safetensors(file); !wrong.empty())
        c.found("accepts a safetensors file with " + wrong, file.string());
}

/// The dims that were accepted are those that config.json says.
void judge_dims(Case& c) {
  const config::Model m = config::load_deck("deck.toml").model;
  json said;
  try {
    said = parse_json(read_bytes("hf/config.json"));
  } catch (const std::exception&) {
    return c.found("accepts a config.json that is no JSON");
  }
  const std::vector<std::pair<const char*, std::int64_t>> whole{
      {"hidden_size", m.hidden_size},
      {"intermediate_size", m.intermediate_size},
      {"num_hidden_layers", m.num_hidden_layers},
      {"num_attention_heads", m.num_attention_heads},
      {"vocab_size", m.vocab_size}};
  for (const auto& [key, value] : whole)
    if (!said.contains(key) || !said[key].is_number_integer() || said[key] != value)
      c.found(fmt::format("accepts a config.json without a sound {}", key),
              fmt::format("took it for {}", value));
  if (!(m.rms_norm_eps > 0 && m.rms_norm_eps <= 1))
    c.found("accepts rms_norm_eps", fmt::to_string(m.rms_norm_eps));
  if (!(m.rope_theta > 0 && m.rope_theta < 1e30)) c.found("accepts rope_theta", fmt::to_string(m.rope_theta));
}

}  // namespace

void make_model(Case& c) {
  write_bytes(c.folder / "text.txt", sound_text());
  DeckKeys keys = small_deck();
  keys.emplace_back("run.output", R"("base")");
  write_bytes(c.folder / "base.toml", toml_of(keys));
  c.run({"base.toml"});
  c.run({"export", "base/checkpoints/step_2", "--to", "hf", "--dtype", "fp32", "--max-shard-size", "1e-5"});
  fs::remove_all("base");
  fs::remove("base.toml");
  write_bytes("hf/generation_config.json",
              R"({"eos_token_id": [256, 0], "bos_token_id": 1, "do_sample": true})");
  write_bytes(c.folder / "deck.toml", toml_of(deck_of_model()));
  c.run({"check", "deck.toml"});
  c.run(generate_model);
  judge_weights(c);
  judge_dims(c);
}

void attack_model(Case& c) {
  c.copy("model");
  change(c);
  if (c.random.one_in(6)) change(c);
  Outcome outcome;
  switch (c.random.below(5)) {
    case 0:
      outcome = c.run({"plan", "deck.toml", "--ranks", "2"});
      if (outcome.accepted) judge_dims(c);
      return;
    case 1:
      outcome = c.run(generate_model);
      break;
    case 2:
      outcome = c.run({"deck.toml"});
      break;
    default:
      outcome = c.run({"check", "deck.toml"});
  }
  if (!outcome.accepted) return;
  judge_weights(c);
  judge_dims(c);
}

}  // namespace ztrain::damaged_files
