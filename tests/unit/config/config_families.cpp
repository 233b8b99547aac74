// Families other than Llama's next of kin: config.json as transformers 4 and 5 write it, read and written.
#include "base/json.hpp"
#include "config/architectures.hpp"
#include "config/fields/value.hpp"
#include "config/hf/hf_config.hpp"
#include "config_folder.hpp"
#include "expert_rows.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::config::config_families_test {
namespace {

/// Rotary embeddings.
std::vector<Row> rotary_rows() {
  return {
      {"LlamaForCausalLM",
       R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
       {{"rope_scaling", "\"linear\""}, {"rope_factor", "2"}},
       R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})"},
      {"LlamaForCausalLM",
       R"({"rope_parameters": {"rope_type": "yarn", "factor": null, "rope_theta": 5e4, "truncate": false,
           "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 1.0, "beta_fast": 16}})",
       {{"rope_theta", "50000"},
        {"rope_factor", "4"},
        {"rope_original_max_position", "16"},
        {"rope_beta_fast", "16"},
        {"rope_beta_slow", "1"},
        {"rope_mscale", "0.5"},
        {"rope_mscale_all_dim", "1"},
        {"rope_truncate", "false"}},
       R"({"rope_theta": 50000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false,
           "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 1.0, "beta_fast": 16.0}})"},
      {"Gemma3ForCausalLM",
       R"({"rope_theta": 1e6, "rope_local_base_freq": 2e4, "sliding_window": 9, "sliding_window_pattern": 2,
           "rope_scaling": {"rope_type": "linear", "factor": 8.0}})",
       {{"qk_norm", "true"},
        {"rope_local_base_freq", "20000"},
        {"rope_factor", "8"},
        {"attn_logit_softcapping", "0"},
        {"layer_types", R"(["sliding_attention", "full_attention"])"}},
       R"({"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 20000.0,
           "rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}})"},
      {"Gemma3ForCausalLM",
       R"({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 3e6},
                               "sliding_attention": {"rope_type": "default", "rope_theta": 3e4}}})",
       {{"rope_theta", "3000000"}, {"rope_local_base_freq", "30000"}, {"rope_scaling", "\"none\""}}},
      {"Phi3ForCausalLM",
       R"({"original_max_position_embeddings": 16, "resid_pdrop": 0.1, "rope_scaling":
           {"type": "su", "short_factor": [1.0, 1.25, 1.5], "long_factor": [2.0, 2.5, 3.0]},
           "partial_rotary_factor": 0.5, "head_dim": 12})",
       {{"rope_scaling", "\"longrope\""},
        {"rope_factor", "4"},
        {"rope_original_max_position", "16"},
        {"rope_short_factor", "[1, 1.25, 1.5]"},
        {"rope_long_factor", "[2, 2.5, 3]"},
        {"partial_rotary_factor", "0.5"}},
       R"({"rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.25, 1.5],
                            "long_factor": [2.0, 2.5, 3.0]},
           "original_max_position_embeddings": 16, "resid_pdrop": 0.1, "embd_pdrop": 0.0})"},
  };
}

/// Windows, caps and norms.
std::vector<Row> layer_rows() {
  return {
      {"MinistralForCausalLM",
       R"({"sliding_window": 9, "layer_types": ["full_attention", "sliding_attention", "full_attention",
           "sliding_attention"]})",
       {{"sliding_window", "9"}, {"layer_types", R"(["full_attention", "sliding_attention"])"}}},
      {"Qwen3ForCausalLM",
       R"({"use_sliding_window": true, "sliding_window": 9, "layer_types": ["full_attention",
           "sliding_attention", "sliding_attention", "full_attention"]})",
       {{"layer_types", R"(["full_attention", "sliding_attention", "sliding_attention"])"},
        {"full_attention_layers", "0"}}},
      {"Gemma2ForCausalLM",
       R"({"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 144, "sliding_window": 9})",
       {{"family", "\"gemma2\""},
        {"query_pre_attn_scalar", "144"},
        {"layer_types", R"(["sliding_attention", "full_attention"])"},
        {"attn_logit_softcapping", "50"},
        {"final_logit_softcapping", "30"},
        {"tie_word_embeddings", "true"}},
       R"({"query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0, "hidden_act": "gelu_pytorch_tanh",
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})"},
      {"Gemma2ForCausalLM",
       R"({"attn_logit_softcapping": null, "final_logit_softcapping": null, "attention_bias": true})",
       {{"attn_logit_softcapping", "0"},
        {"final_logit_softcapping", "0"},
        {"attention_output_bias", "true"},
        {"sliding_window", "4096"}},
       R"({"attn_logit_softcapping": null})"},
      {"Olmo3ForCausalLM",
       R"({"rope_theta": 5e5, "sliding_window": 9, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
           "original_max_position_embeddings": 16}})",
       {{"rope_local_base_freq", "500000"},
        {"rope_scaling", "\"yarn\""},
        {"layer_types",
         R"(["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])"}},
       R"({"rope_parameters": {
             "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500000.0,
                                "original_max_position_embeddings": 16},
             "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}})"},
      {"Olmo2ForCausalLM", "{}", {{"qk_norm", "true"}, {"rms_norm_eps", "1e-05"}}},
      {"SmolLM3ForCausalLM",
       R"({"no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 9})",
       {{"no_rope_layers", "[1, 0]"},
        {"layer_types", R"(["full_attention", "sliding_attention"])"},
        {"rope_theta", "2000000"}},
       R"({"no_rope_layers": [1, 0, 1, 0], "use_sliding_window": true})"},
      {"SmolLM3ForCausalLM",
       R"({"no_rope_layers": [1, 1, 1, 1]})",
       {{"no_rope_layers", "[]"}, {"sliding_window", "0"}},
       R"({"no_rope_layers": [1, 1, 1, 1], "sliding_window": null})"},
  };
}

std::vector<Row> other_rows() {
  return {
      {"GlmForCausalLM",
       R"({"partial_rotary_factor": 0.25})",
       {{"attention_bias", "true"}, {"attention_output_bias", "false"}, {"partial_rotary_factor", "0.25"}}},
      {"Glm4ForCausalLM",
       R"({"attention_bias": false, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})",
       {{"partial_rotary_factor", "0.5"}, {"rms_norm_eps", "1.5625e-07"}},
       R"({"partial_rotary_factor": 0.5})"},
      {"GraniteForCausalLM",
       R"({"attention_multiplier": 0.0625, "embedding_multiplier": 12, "logits_scaling": 8,
           "attention_dropout": 0.1})",
       {{"attention_multiplier", "0.0625"},
        {"embedding_multiplier", "12"},
        {"residual_multiplier", "1"},
        {"logits_scaling", "8"}},
       R"({"attention_dropout": 0.1, "logits_scaling": 8.0})"},
      {"ApertusForCausalLM",
       "{}",
       {{"rope_scaling", "\"llama3\""}, {"rope_theta", "12000000"}, {"rope_original_max_position", "8192"}},
       R"({"hidden_act": "xielu"})"},
      {"ApertusForCausalLM",
       R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})",
       {{"rope_scaling", "\"none\""}},
       R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})"},
      {"Starcoder2ForCausalLM",
       R"({"use_bias": false, "norm_epsilon": 1e-4})",
       {{"attention_bias", "false"}, {"mlp_bias", "false"}, {"rms_norm_eps", "0.0001"}},
       R"({"use_bias": false, "norm_epsilon": 1e-4})"},
      {"GPT2LMHeadModel",
       R"({"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512, "attn_pdrop": 0.1})",
       {{"hidden_size", "64"},
        {"intermediate_size", "256"},
        {"num_hidden_layers", "3"},
        {"num_key_value_heads", "4"},
        {"head_dim", "16"},
        {"max_position_embeddings", "512"},
        {"mlp_bias", "true"},
        {"tie_word_embeddings", "true"}},
       R"({"n_embd": 64, "n_inner": 256, "n_positions": 512, "attn_pdrop": 0.1})"},
  };
}

json config_of(const Row& row) {
  json config{{"architectures", {row.hf_class}},
              {"hidden_size", 64},
              {"intermediate_size", 128},
              {"num_hidden_layers", 4},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 16},
              {"vocab_size", 100},
              {"max_position_embeddings", 64}};
  config.update(parse_json(row.keys));
  return config;
}

TEST_F(Folder, FamiliesAreReadAndWritten) {
  std::vector<Row> rows = rotary_rows();
  for (const auto& more : {layer_rows(), other_rows(), expert_rows(), gpt_oss_rows(), latent_rows()})
    rows.insert(rows.end(), more.begin(), more.end());
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.hf_class) + row.keys);
    const auto read_deck = [&](const json& config) {
      write(json_text(config));
      EXPECT_EQ(deck_error(section()), "no error");
      return deck_of(section());
    };
    const Deck deck = read_deck(config_of(row));
    for (const auto& [key, value] : row.deck)
      EXPECT_EQ(render(*find_field("model." + std::string(key)), deck), value) << key;
    const json written = parse_json(hf_config(deck.model, DType::bf16, 16)),
               expected = parse_json(row.written);
    for (const auto& [key, value] : expected.items())
      EXPECT_EQ(written.value(key, json("absent")), value) << key;
    const Deck again = read_deck(written);
    for (const Field& field : fields())
      EXPECT_TRUE(field.section() != "model" || render(field, again) == render(field, deck)) << field.key;
  }
}

TEST_F(Folder, WhatFamiliesHaveNotIsRefused) {
  const Row refused[] = {
      {"GPT2LMHeadModel", R"({"n_embd": 64, "scale_attn_by_inverse_layer_idx": true})", {}, "gpt2 has false"},
      {"GPT2LMHeadModel", R"({"activation_function": "relu"})", {}, "gpt2 has \"gelu_new\""},
      {"Gemma2ForCausalLM", R"({"use_bidirectional_attention": true})", {}, "gemma2 has false"},
      {"MistralForCausalLM", R"({"logits_scaling": 8})", {}, "logits_scaling = 8: not supported"},
      {"Olmo2ForCausalLM",
       R"({"rope_scaling": {"rope_type": "default", "mrope_section": [1]}})",
       {},
       "mrope_section: not supported"},
      {"Gemma3ForCausalLM",
       R"({"rope_parameters": {"full_attention": {"rope_type": "default"},
                               "sliding_attention": {"rope_type": "linear", "factor": 2.0}}})",
       {},
       "sliding_attention has a scaling of its own"},
      {"SmolLM3ForCausalLM", R"({"no_rope_layers": [1, 0]})", {}, "must be a list of 4 numbers"},
      {"SmolLM3ForCausalLM", R"({"no_rope_layers": [1, 0, 1, 2]})", {}, "no_rope_layers"},
      {"SmolLM3ForCausalLM", R"({"no_rope_layer_interval": 0})", {}, "must be from 1 to 1000"},
      {"Phi3ForCausalLM",
       R"({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}})",
       {},
       "longrope needs 8 in each"},
      {"Phi3ForCausalLM", R"({"partial_rotary_factor": 0.2})", {}, "are 3 elements"},
      {"MixtralForCausalLM", R"({"router_jitter_noise": 0.1})", {}, "mixtral has 0.0"},
      {"OlmoeForCausalLM", R"({"clip_qkv": 8.0})", {}, "olmoe has null"},
      {"Qwen2MoeForCausalLM", R"({"use_sliding_window": true})", {}, "qwen2_moe has false"},
      {"GptOssForCausalLM", R"({"swiglu_limit": 6.0})", {}, "gpt_oss has 7.0"},
      {"OlmoeForCausalLM",
       R"({"quantization_config": {"quant_method": "mxfp4"}})",
       {},
       "quantization_config: not supported"},
      {"Qwen3MoeForCausalLM", R"({"num_experts": 0})", {}, "num_experts (0) must be positive"},
      {"Phi3ForCausalLM", R"({"auto_map": {"AutoConfig": "a.B"}})", {}, "model.trust_config = true"},
  };
  for (const Row& row : refused) {
    write(json_text(config_of(row)));
    const std::string message = deck_error(section());
    EXPECT_NE(message.find(row.written), std::string::npos) << row.keys << ": " << message;
  }
  write(json_text(config_of(*std::rbegin(refused))));
  EXPECT_EQ(deck_error(section("trust_config = true\n")), "no error");
}

TEST_F(Folder, DropoutIsToldAndNotDone) {
  const auto note = [&](const Row& row) {
    write(json_text(config_of(row)));
    return left_out_note(deck_of(section()).model);
  };
  EXPECT_EQ(note({"GPT2LMHeadModel", R"({"n_embd": 48, "attn_pdrop": 0.1, "embd_pdrop": 0.2})", {}}),
            "ztrain trains without dropout; " + file() + " says embd_pdrop = 0.2, attn_pdrop = 0.1");
  EXPECT_EQ(note({"GPT2LMHeadModel", R"({"n_embd": 48, "attn_pdrop": 0})", {}}), "");
  EXPECT_EQ(left_out_note(Model{}), "");
}

TEST(FamiliesOfDecks, HaveTheirOwnDefaults) {
  const auto value = [](const std::string& keys, const char* key) {
    return render(*find_field(std::string("model.") + key), deck_of("[model]\n" + keys));
  };
  EXPECT_EQ(value("family = \"gemma2\"\n", "attn_logit_softcapping"), "50");
  EXPECT_EQ(value("family = \"gemma2\"\nattn_logit_softcapping = 0\n", "attn_logit_softcapping"), "0");
  EXPECT_EQ(value("family = \"gemma2\"\n", "layer_types"), R"(["sliding_attention", "full_attention"])");
  EXPECT_EQ(value("family = \"gemma2\"\nsliding_window = 0\n", "layer_types"), "[]");
  EXPECT_EQ(value("family = \"gemma3\"\nnum_hidden_layers = 2\n", "layer_types"),
            R"(["sliding_attention", "sliding_attention"])");
  EXPECT_EQ(value("family = \"smollm3\"\nnum_hidden_layers = 2\n", "no_rope_layers"), "[1, 1]");
  EXPECT_EQ(value("family = \"olmo3\"\nrope_theta = 77.0\n", "rope_local_base_freq"), "77");
  EXPECT_EQ(value("family = \"starcoder2\"\nattention_bias = false\n", "mlp_bias"), "false");
  EXPECT_EQ(value("family = \"glm4\"\n", "partial_rotary_factor"), "0.5");
  EXPECT_EQ(value("family = \"gpt2\"\n", "num_key_value_heads"), "8");
  EXPECT_EQ(value("preset = \"gpt2-xl\"\n", "attention_output_bias"), "true");
  EXPECT_EQ(value("family = \"mixtral\"\nintermediate_size = 40\n", "moe_intermediate_size"), "40");
  EXPECT_EQ(value("preset = \"mixtral-8x7b\"\n", "moe_intermediate_size"), "14336");
  EXPECT_EQ(value("preset = \"qwen3-30b-a3b\"\n", "num_experts"), "128");
  EXPECT_EQ(value("preset = \"gpt-oss-20b\"\n", "num_experts"), "32");
}

TEST(FamiliesOfDecks, ExportsAreWhatTheirClassesTake) {
  const auto written = [](const std::string& keys) {
    return parse_json(hf_config(deck_of("[model]\n" + keys).model, DType::bf16, 16));
  };
  for (const char* family : {"gemma2", "gemma3", "olmo3", "ministral"}) {
    const json config = written(fmt::format("family = \"{}\"\nsliding_window = 0\n", family));
    EXPECT_TRUE(config["sliding_window"].is_number()) << family << " masks by a window that no layer has";
    for (const json& type : config["layer_types"]) EXPECT_EQ(type, "full_attention") << family;
  }
  EXPECT_NE(test::error_of([&] {
              written("family = \"phi3\"\nrope_scaling = \"linear\"\n");
            }).find("longrope alone"),
            std::string::npos);
}

TEST(FamiliesOfDecks, PresetsAreOfTheirFamily) {
  for (const Architecture& a : architectures())
    for (const ModelPreset& preset : a.presets) {
      const Deck deck = deck_of(fmt::format("[model]\npreset = \"{}\"\n", preset.name));
      EXPECT_EQ(deck.model.family, a.family);
      EXPECT_NE(hf_config(deck.model, DType::bf16, 8).find(a.hf_class), std::string::npos) << preset.name;
    }
  EXPECT_EQ(deck_of("[model]\npreset = \"llama3.2-1b\"\n").model.rope_factor, 32);
  EXPECT_EQ(deck_of("[model]\npreset = \"gemma2-27b\"\n").model.query_pre_attn_scalar, 144);
}

}  // namespace
}  // namespace ztrain::config::config_families_test
