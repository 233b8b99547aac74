// model.from: dims from the config.json of a Hugging Face model.
#include "config_folder.hpp"

#include "config/hf/hf_config.hpp"
#include "config/hf/special_tokens.hpp"
#include "config/hf/starting_point.hpp"

namespace ztrain::config::config_folder_test {
namespace {

TEST_F(Folder, GivesTheDims) {
  write(base_config);
  const Deck deck = deck_of(section());
  const Model& m = deck.model;
  EXPECT_EQ(m.hidden_size, 96);
  EXPECT_EQ(m.intermediate_size, 200);
  EXPECT_EQ(m.num_hidden_layers, 3);
  EXPECT_EQ(m.num_attention_heads, 4);
  EXPECT_EQ(m.num_key_value_heads, 2);
  EXPECT_EQ(m.head_dim, 24);
  EXPECT_EQ(m.vocab_size, 1000);
  EXPECT_EQ(m.rms_norm_eps, 1e-6);
  EXPECT_EQ(m.rope_theta, 5e5);
  EXPECT_EQ(m.rope_scaling, "llama3");
  EXPECT_EQ(m.rope_factor, 32);
  EXPECT_EQ(m.rope_original_max_position, 8192);
  EXPECT_TRUE(m.tie_word_embeddings);
  EXPECT_EQ(source_of(deck, "model.hidden_size"), file());
  EXPECT_EQ(source_of(deck, "model.rope_factor"), file());
}

TEST_F(Folder, DefaultsAreThoseOfTransformers) {
  write(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 10, "rope_scaling": null})");
  const Model m = deck_of(section()).model;
  EXPECT_EQ(m.num_key_value_heads, 4);
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.rms_norm_eps, 1e-6);
  EXPECT_EQ(m.rope_theta, 1e4);
  EXPECT_EQ(m.rope_scaling, "none");
  EXPECT_FALSE(m.tie_word_embeddings);
}

TEST_F(Folder, RopeParametersAreTheNewerForm) {
  write(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 10,
            "rope_parameters": {"rope_theta": 123.5, "rope_type": "default"}})");
  EXPECT_EQ(deck_of(section()).model.rope_theta, 123.5);
}

TEST_F(Folder, AdaptersNeedABase) {
  write(base_config);
  const auto error = [&](const Deck& deck) { return error_of([&] { require_base_of_adapters(deck); }); };
  EXPECT_EQ(error(deck_of(section(), {"--lora.rank=4"})), "no error");
  EXPECT_EQ(error(deck_of("", {"--lora.rank=4", "--lora.random_base=true"})), "no error");
  EXPECT_EQ(error(deck_of("")), "no error");
  EXPECT_EQ(
      error(deck_of("", {"--lora.rank=4"})),
      "command line: lora.rank = 4 trains adapters of a model whose weights would be drawn at random: set "
      "model.from to the model that they belong to, or lora.random_base = true if random weights are what "
      "you want");
}

TEST_F(Folder, WhatIsGivenBesidesMustAgree) {
  write(base_config);
  EXPECT_EQ(deck_of(section("hidden_size = 96\nhead_dim = 24\n")).model.hidden_size, 96);
  const std::string message = deck_error(section("hidden_size = 97\n"));
  EXPECT_NE(message.find("input.toml:9: model.hidden_size = 97 contradicts " + file() + ", which says 96"),
            std::string::npos)
      << message;
  // A preset beside the folder of its model, with every key that it sets.
  write(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
            "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})");
  EXPECT_EQ(deck_error(section("preset = \"llama3.1-8b\"\n")), "no error");
  EXPECT_EQ(deck_error(section("preset = \"llama3.1-8b\"\nhead_dim = 0\nnum_key_value_heads = 0\n")),
            "no error");
  EXPECT_NE(deck_error(section("preset = \"llama3-8b\"\n")).find("preset llama3-8b"), std::string::npos);
  write(base_config);
  const std::string preset = deck_error(section("preset = \"100m\"\n"));
  EXPECT_NE(preset.find("preset 100m: model.hidden_size = 768 contradicts"), std::string::npos) << preset;
  EXPECT_NE(preset.find("model.preset"), std::string::npos) << preset;
  EXPECT_NE(deck_error(section(), {"--model.rope_theta=1e4"}).find("command line: model.rope_theta"),
            std::string::npos);
}

TEST_F(Folder, WhatZtrainHasNotIsRefusedByName) {
  struct Row {
    const char* key;
    json value;
    const char* expected;
  };
  const Row rows[] = {
      {"architectures", {"FalconForCausalLM"}, "MixtralForCausalLM"},
      {"architectures", json(json::value_t::discarded), "architectures is missing"},
      {"hidden_act", "gelu", "hidden_act = \"gelu\""},
      {"mlp_bias", true, "mlp_bias = true"},
      {"model_type", "mistral", "model_type = \"mistral\" contradicts architectures"},
      {"attention_dropout", 0.1, "attention_dropout = 0.1"},
      {"quantization_config", {{"bits", 4}}, "quantization_config"},
      {"quantization_config", {{"quant_method", "mxfp4"}}, "quantization_config"},
      {"rope_scaling", {{"type", "linear"}, {"ratio", 2.0}}, "rope_scaling: ratio: not supported"},
      {"rope_scaling", {{"rope_type", "axial"}}, "type \"axial\""},
      {"rope_scaling", {{"rope_type", "llama3"}}, "rope_scaling: factor is missing"},
      {"rope_scaling", 3, "must be an object"},
      {"rope_parameters", {{"rope_theta", 3.0}}, "contradict each other"},
      {"rope_scaling", {{"full_attention", json::object()}}, "that differ by layer"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor"},
      {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}, "2 of 3"},
      {"hidden_size", json(json::value_t::discarded), "hidden_size is missing"},
      {"hidden_size", 96.5, "hidden_size = 96.5: must be a whole number"},
      {"hidden_size", -96, "-96"},
      {"num_attention_heads", 5, "num_attention_heads (5) does not divide"},
      {"num_attention_heads", 0, "num_attention_heads (0)"},
      {"num_key_value_heads", 0, "num_key_value_heads (0)"},
      {"vocab_size", 0, "vocab_size (0)"},
      {"rope_theta", "big", "rope_theta = \"big\": must be a number"},
      {"tie_word_embeddings", 1, "must be true or false"}};
  for (const Row& row : rows) {
    const std::string message = error(row.key, row.value);
    EXPECT_EQ(message.rfind(file(), 0), 0u) << message;
    EXPECT_NE(message.find(row.expected), std::string::npos) << row.key << ": " << message;
  }
  write("{");
  EXPECT_NE(deck_error(section()).find("not valid JSON"), std::string::npos);
  write("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_NE(deck_error(section()).find("nested more than"), std::string::npos);
  EXPECT_NE(deck_error("[model]\nfrom = \"nowhere\"\n")
                .find("nowhere' is neither a Hugging Face model nor a checkpoint"),
            std::string::npos);
  const std::string hub = deck_error("[model]\nfrom = \"meta-llama/Llama-3.1-8B\"\n");
  EXPECT_NE(hub.find("`hf download meta-llama/Llama-3.1-8B --local-dir '"), std::string::npos) << hub;
  EXPECT_TRUE(hub.ends_with("/meta-llama/Llama-3.1-8B'`")) << hub;
}

TEST_F(Folder, SaysWhatGenerationNeeds) {
  EXPECT_TRUE(hf_eos(folder()).empty());
  EXPECT_EQ(hf_positions(folder()), 0);
  write(R"({"eos_token_id": [7, 2147483647], "n_positions": 5})");
  EXPECT_EQ(hf_eos(folder()), (std::vector<std::int32_t>{7, 2147483647}));
  EXPECT_EQ(hf_positions(folder()), 5);
  write(R"({"eos_token_id": -1, "n_positions": 5, "max_position_embeddings": 6})");
  EXPECT_TRUE(hf_eos(folder()).empty());
  EXPECT_EQ(hf_positions(folder()), 6);
  write(R"({"eos_token_id": 8})", "generation_config.json");
  EXPECT_EQ(hf_eos(folder()), std::vector<std::int32_t>{8});
}

TEST_F(Folder, BrokenNumbersOfGenerationAreRefusedByFileAndKey) {
  struct Row {
    const char* text;
    const char* expected;
  };
  // The first is 12 in 32 bits.
  const Row rows[] = {{"{\"eos_token_id\": 4294967308}", "4294967308 is above 2147483647"},
                      {"{\"eos_token_id\": [1, 18446744073709551615]}", "18446744073709551615 is above"},
                      {"{\"eos_token_id\": -2}", "-2 is no token id"},
                      {"{\"eos_token_id\": [1, 2.5]}", "must be a token id or a list of them"},
                      {"{\"eos_token_id\": \"x\"}", "must be a token id or a list of them"}};
  for (const Row& row : rows)
    for (const char* name : {"generation_config.json", "config.json"}) {
      write("{}");
      write("{}", "generation_config.json");
      write(row.text, name);
      const std::string message = error_of([&] { hf_eos(folder()); });
      EXPECT_EQ(message.rfind(folder() + "/" + name + ": eos_token_id = ", 0), 0u) << message;
      EXPECT_NE(message.find(row.expected), std::string::npos) << message;
    }
  write(R"({"max_position_embeddings": 9223372036854775808})");
  const std::string message = error_of([&] { hf_positions(folder()); });
  EXPECT_NE(message.find(file() + ": max_position_embeddings = 9223372036854775808"), std::string::npos)
      << message;
}

TEST_F(Folder, EveryFileIsReadWithinLimits) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    write("{}");
    write(std::string(2 << 20, ' ') + "{}", name);
    EXPECT_NE(error_of([&] { hf_eos(folder()); }).find(std::string(name) + "' has 2097154 bytes"),
              std::string::npos);
    write("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", name);
    EXPECT_NE(error_of([&] {
                hf_eos(folder());
              }).find(std::string(name) + ": its JSON is nested more than 16 deep"),
              std::string::npos);
    write("[]", name);
    EXPECT_NE(error_of([&] { hf_eos(folder()); }).find(std::string(name) + ": is not a JSON object"),
              std::string::npos);
    write("{}", name);
  }
}

/// Transformers takes others where a file is silent: 1 and 2 for a Llama.
TEST_F(Folder, SpecialTokensOfAnExportAreThoseOfItsModelOrItsData) {
  const auto ids_of = [&](const std::string& config, const std::vector<std::int32_t>& ends) {
    write(config.empty() ? base_config : config);
    Model m = deck_of(section()).model;
    m.ends = ends;
    if (config.empty()) m.from.clear();
    const json written = parse_json(hf_config(m, DType::bf16, 4096));
    json ids = json::object();
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (written.contains(key)) ids[key] = written[key];
    return json_text(ids);
  };
  const auto with = [&](const char* ids) { return std::string(base_config).insert(1, ids); };
  EXPECT_EQ(ids_of("", {}), R"({"bos_token_id":null,"eos_token_id":null,"pad_token_id":null})");
  EXPECT_EQ(ids_of("", {4}), R"({"bos_token_id":null,"eos_token_id":4,"pad_token_id":null})");
  EXPECT_EQ(ids_of("", {4, 9}), R"({"bos_token_id":null,"eos_token_id":[4,9],"pad_token_id":null})");
  EXPECT_EQ(ids_of(with(R"("eos_token_id": [7, 8], "pad_token_id": null,)"), {4}),
            R"({"eos_token_id":[7,8,4],"pad_token_id":null})");
  EXPECT_EQ(ids_of(with(R"("eos_token_id": [7, 8],)"), {8, 7}), R"({"eos_token_id":[7,8]})");
  write(R"({"eos_token_id": [7, 9]})", "generation_config.json");
  EXPECT_EQ(ids_of(with(R"("eos_token_id": 7,)"), {7, 9}), R"({"eos_token_id":7})") << "no run added 9";
  EXPECT_EQ(ids_of(with(R"("eos_token_id": 7,)"), {7, 9, 4}), R"({"eos_token_id":[7,4]})");
  EXPECT_EQ(ids_of(base_config, {7, 9, 4}), R"({"eos_token_id":[7,9,4]})");
  write("{}", "generation_config.json");
  EXPECT_EQ(ids_of(with(R"("eos_token_id": null, "bos_token_id": 3,)"), {4}),
            R"({"bos_token_id":3,"eos_token_id":4})");
  EXPECT_EQ(ids_of(base_config, {}), "{}");
}

TEST_F(Folder, GenerationStopsAtTheEndsOfTheModelAndOfItsData) {
  write(std::string(base_config).insert(1, R"("eos_token_id": 7,)"));
  Model m = deck_of(section()).model;
  const std::string config = R"({"bos_token_id": 1, "eos_token_id": [7, 4], "pad_token_id": null, "a": 5})",
                    own = R"({"eos_token_id": [7, 8], "top_p": 0.5})";
  const auto made = [&](std::vector<std::int32_t> ends, const std::optional<std::string>& text) {
    if (text) write(*text, "generation_config.json");
    m.ends = std::move(ends);
    const std::string written = generation_config(m, config, text);
    return text == written || written.empty() ? written : json_text(parse_json(written));
  };
  EXPECT_EQ(made({7, 4}, std::nullopt), R"({"bos_token_id":1,"eos_token_id":[7,4]})");
  EXPECT_EQ(made({7, 8}, own), own) << "byte for byte";
  EXPECT_EQ(made({7, 8, 4}, own), R"({"eos_token_id":[7,8,4],"top_p":0.5})");
  EXPECT_EQ(made({7, 4}, R"({"top_p": 0.5})"), R"({"eos_token_id":[7,4],"top_p":0.5})");
  EXPECT_EQ(made({4}, "no JSON"), "no JSON");
  EXPECT_EQ(generation_config(m, R"({"eos_token_id": null})", std::nullopt), "");
}

/// Where it says true, the files may hold a head of their own, which a deck may ask for.
TEST_F(Folder, ADeckMayUntieAHead) {
  const auto tied = [&](const char* of_folder, const std::string& more) {
    json config = parse_json(base_config);
    config["tie_word_embeddings"] = parse_json(of_folder);
    write(json_text(config));
    const bool refused = deck_error(section(more)) != "no error";
    return refused ? -1 : static_cast<int>(deck_of(section(more)).model.tie_word_embeddings);
  };
  EXPECT_EQ(tied("true", ""), 1);
  EXPECT_EQ(tied("true", "tie_word_embeddings = false\n"), 0);
  EXPECT_EQ(tied("true", "tie_word_embeddings = true\n"), 1);
  EXPECT_EQ(tied("false", "tie_word_embeddings = true\n"), -1) << "contradicts";
}

TEST_F(Folder, WhatIsWrittenIsReadBack) {
  write(base_config);
  const Model before = deck_of(section()).model;
  write(hf_config(before, DType::bf16, 4096));
  const Model after = deck_of(section()).model;
  EXPECT_EQ(after.head_dim, before.head_dim);
  EXPECT_EQ(after.rms_norm_eps, before.rms_norm_eps);
  EXPECT_EQ(after.rope_theta, before.rope_theta);
  EXPECT_EQ(after.rope_factor, before.rope_factor);
  EXPECT_EQ(after.rope_original_max_position, before.rope_original_max_position);
  EXPECT_EQ(after.tie_word_embeddings, before.tie_word_embeddings);
  Model biased = before;
  biased.attention_bias = true;
  biased.attention_output_bias = false;
  EXPECT_NE(error_of([&] { hf_config(biased, DType::bf16, 1); }).find("model.attention_output_bias = false"),
            std::string::npos);
}

}  // namespace
}  // namespace ztrain::config::config_folder_test
