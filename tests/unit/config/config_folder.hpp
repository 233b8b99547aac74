#pragma once
// A folder with a config.json, for the tests of models that come from Hugging Face.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "config_deck.hpp"

namespace ztrain::config {

using nlohmann::json;

class Folder : public ::testing::Test {
 protected:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() override { std::filesystem::remove_all(path_); }

  void write(const std::string& text, const char* name = "config.json") const {
    std::ofstream(path_ / name) << text;
  }
  std::string folder() const { return path_.string(); }
  std::string file() const { return (path_ / "config.json").string(); }
  std::string section(const std::string& more = "") const {
    return fmt::format("[model]\nfrom = \"{}\"\n{}", path_.string(), more);
  }
  /// The message about the base config with a member changed, or removed where it is discarded.
  std::string error(const char* key, const json& value, const std::string& more = "") const {
    json config = parse_json(base_config);
    config[key] = value;
    if (value.is_discarded()) config.erase(key);
    write(json_text(config));
    return deck_error(section(more));
  }

  /// The model of a config.json.
  Model read(const json& config) const {
    write(json_text(config));
    return deck_of(section()).model;
  }

  static constexpr const char* base_config = R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 96, "intermediate_size": 200,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "rms_norm_eps": 1e-06, "rope_theta": 500000.0, "tie_word_embeddings": true, "hidden_act": "silu",
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("ztrain-config-{}", ::getpid());
};

}  // namespace ztrain::config
