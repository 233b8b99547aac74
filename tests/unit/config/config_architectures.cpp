// Families: what config.json says of each, read and written, and which dims go together.
#include "base/json.hpp"
#include "config/architectures.hpp"

#include "config/hf/hf_config.hpp"
#include "config_folder.hpp"
#include "model/family.hpp"

namespace ztrain::config::config_architectures_test {
namespace {

/// Dims of a config.json, of this class.
json config_of(const char* hf_class, const json& more = json::object()) {
  json config{{"architectures", {hf_class}},
              {"hidden_size", 64},
              {"intermediate_size", 128},
              {"num_hidden_layers", 4},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 24},
              {"vocab_size", 100},
              {"rms_norm_eps", 1e-6},
              {"rope_theta", 1e6},
              {"rope_scaling", nullptr},
              {"tie_word_embeddings", true},
              {"hidden_act", "silu"},
              {"attention_dropout", 0.0},
              {"initializer_range", 0.02},
              {"use_cache", true},
              {"torch_dtype", "bfloat16"}};
  config.update(more);
  return config;
}

TEST(Architectures, EachHasAModel) {
  for (const Architecture& a : architectures())
    EXPECT_NE(model::find_family(a.family).emit, nullptr) << a.family;
  EXPECT_NE(
      error_of([] { find_architecture("gpt3"); }).find("known: llama, mistral, ministral, mixtral, qwen2"),
      std::string::npos);
}

TEST(Presets, OfMixturesHaveThePublishedNumbersOfParameters) {
  const std::pair<const char*, std::int64_t> published[] = {
      {"mixtral-8x7b", 46'702'792'704},     {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560}, {"gpt-oss-20b", 20'914'757'184},
      {"deepseek-v2", 235'741'434'880},     {"deepseek-v3", 671'026'419'200},
      {"olmoe-1b-7b", 6'919'161'856}};
  for (const auto& [preset, parameters] : published) {
    const Model m = deck_of(fmt::format("[model]\npreset = \"{}\"\n", preset)).model;
    std::int64_t sum = 0;
    for (const model::Parameter& p : model::find_family(m.family).emit(m, {1, DType::bf16}).parameters)
      sum += elements(p.shape);
    EXPECT_EQ(sum, parameters) << preset;
  }
}

struct RoundTrip {
  const char* family;
  const char* hf_class;
  json keys;  ///< of config.json, that the family has besides
  bool bias, output_bias, qk_norm;
  std::int64_t window, full_layers;
};

const json all_full = json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
const json one_full =
    json::array({"full_attention", "sliding_attention", "sliding_attention", "sliding_attention"});

const std::vector<RoundTrip>& round_trips() {
  static const std::vector<RoundTrip> rows{
      {"llama",
       "LlamaForCausalLM",
       {{"attention_bias", false}, {"mlp_bias", false}},
       false,
       false,
       false,
       0,
       0},
      {"llama", "LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", false}}, true, true, false, 0, 0},
      {"mistral", "MistralForCausalLM", {{"sliding_window", nullptr}}, false, false, false, 0, 0},
      {"mistral", "MistralForCausalLM", {{"sliding_window", 30}}, false, false, false, 30, 0},
      {"qwen2",
       "Qwen2ForCausalLM",
       {{"use_sliding_window", false},
        {"sliding_window", 7},
        {"max_window_layers", 3},
        {"layer_types", all_full}},
       true,
       false,
       false,
       0,
       0},
      {"qwen2",
       "Qwen2ForCausalLM",
       {{"use_sliding_window", true},
        {"sliding_window", 7},
        {"max_window_layers", 1},
        {"layer_types", one_full}},
       true,
       false,
       false,
       7,
       1},
      {"qwen3",
       "Qwen3ForCausalLM",
       {{"attention_bias", true},
        {"use_sliding_window", true},
        {"sliding_window", 9},
        {"max_window_layers", 1},
        {"layer_types", one_full}},
       true,
       true,
       true,
       9,
       1},
  };
  return rows;
}

TEST_F(Folder, EachFamilyIsReadAndWritten) {
  for (const RoundTrip& row : round_trips()) {
    const json config = config_of(row.hf_class, row.keys);
    SCOPED_TRACE(json_text(config));
    const Model m = read(config);
    EXPECT_EQ(m.family, row.family);
    EXPECT_EQ(m.attention_bias, row.bias);
    EXPECT_EQ(m.attention_output_bias, row.output_bias);
    EXPECT_EQ(m.qk_norm, row.qk_norm);
    EXPECT_EQ(m.sliding_window, row.window);
    EXPECT_EQ(m.full_attention_layers, row.full_layers);
    EXPECT_EQ(m.head_dim, 24);
    json expected = config;
    expected["model_type"] = row.family;
    expected["max_position_embeddings"] = 4096;
    EXPECT_EQ(parse_json(hf_config(m, DType::bf16, 4096)), expected);
  }
}

/// What the families' config classes of transformers 5 take for absent keys.
TEST_F(Folder, EachFamilyHasItsOwnDefaults) {
  const auto without = [](const char* hf_class, std::initializer_list<const char*> keys) {
    json config = config_of(hf_class);
    config["hidden_size"] = 256;
    config["num_attention_heads"] = 64;
    config["num_hidden_layers"] = 30;
    for (const char* key : keys) config.erase(key);
    return config;
  };
  const auto silent = {"num_key_value_heads", "head_dim"};
  EXPECT_EQ(read(without("LlamaForCausalLM", silent)).num_key_value_heads, 64);
  const Model mistral = read(without("MistralForCausalLM", silent));
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(mistral.sliding_window, 4096);
  const Model qwen3 = read(without("Qwen3ForCausalLM", silent));
  EXPECT_EQ(qwen3.num_key_value_heads, 32);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.sliding_window, 0);
  EXPECT_FALSE(qwen3.attention_bias);
  json windows = without("Qwen2ForCausalLM", {});
  windows["use_sliding_window"] = true;
  EXPECT_EQ(read(windows).sliding_window, 4096);
  EXPECT_EQ(read(windows).full_attention_layers, 28);
  windows["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(windows).num_key_value_heads, 64);
  windows["num_hidden_layers"] = 28;  // max_window_layers leaves none
  EXPECT_EQ(read(windows).sliding_window, 0);
  EXPECT_EQ(read(windows).full_attention_layers, 0);
}

TEST_F(Folder, LayerTypesWinOverMaxWindowLayers) {
  const Model m = read(config_of("Qwen3ForCausalLM", {{"use_sliding_window", true},
                                                      {"sliding_window", 5},
                                                      {"max_window_layers", 3},
                                                      {"layer_types", one_full}}));
  EXPECT_EQ(m.sliding_window, 5);
  EXPECT_EQ(m.full_attention_layers, 1);
  EXPECT_EQ(read(config_of("Qwen3ForCausalLM", {{"use_sliding_window", true},
                                                {"sliding_window", 5},
                                                {"max_window_layers", 0},
                                                {"layer_types", all_full}}))
                .sliding_window,
            0);
}

TEST_F(Folder, WindowsThatAreNotThereAreRefused) {
  const json mixed =
      json::array({"full_attention", "sliding_attention", "full_attention", "sliding_attention"});
  const json chunked =
      json::array({"full_attention", "full_attention", "full_attention", "chunked_attention"});
  const json on{{"use_sliding_window", true}, {"sliding_window", 5}};
  const auto with = [](json keys, const json& types) {
    keys["layer_types"] = types;
    return keys;
  };
  struct Row {
    const char* hf_class;
    json keys;
    const char* expected;
  };
  const Row rows[] = {
      {"Qwen3ForCausalLM", with(on, chunked), "layer_types holds \"chunked_attention\""},
      {"Qwen3ForCausalLM", with(on, json::array({"full_attention"})), "must be a list of 4 names"},
      {"Qwen3ForCausalLM", with({}, one_full), "layer_types asks for windows in 3 of 4 layers"},
      {"MistralForCausalLM", with({{"sliding_window", 5}}, one_full), "windows in 3 of 4 layers"},
      {"MistralForCausalLM", {{"sliding_window", 0}}, "sliding_window = 0: must be positive"},
      {"MistralForCausalLM", {{"attention_bias", true}}, "ztrain's mistral has false"},
      {"Qwen2ForCausalLM", {{"use_sliding_window", 1}}, "use_sliding_window = 1: must be true or false"},
      {"Qwen2ForCausalLM",
       {{"rope_scaling", {{"type", "proportional"}, {"factor", 4.0}}}},
       "type \"proportional\""},
  };
  for (const Row& row : rows) {
    write(json_text(config_of(row.hf_class, row.keys)));
    const std::string message = deck_error(section());
    EXPECT_EQ(message.rfind(file(), 0), 0u) << message;
    EXPECT_NE(message.find(row.expected), std::string::npos) << row.expected << ": " << message;
  }
}

TEST_F(Folder, AKeyBesidesMustAgreeWithTheFamilyToo) {
  write(json_text(config_of("Qwen3ForCausalLM")));
  EXPECT_EQ(deck_of(section("family = \"qwen3\"\nqk_norm = true\n")).model.family, "qwen3");
  EXPECT_NE(deck_error(section("family = \"llama\"\n")).find("model.family = \"llama\" contradicts"),
            std::string::npos);
  EXPECT_NE(deck_error(section("qk_norm = false\n")).find("model.qk_norm = false contradicts"),
            std::string::npos);
}

TEST(Families, DecideWhatIsNotGiven) {
  const auto model = [](const std::string& keys) { return deck_of("[model]\n" + keys).model; };
  const Model qwen2 = model("family = \"qwen2\"\n");
  EXPECT_TRUE(qwen2.attention_bias && !qwen2.attention_output_bias && !qwen2.qk_norm);
  const Model qwen3 = model("family = \"qwen3\"\nattention_bias = true\n");
  EXPECT_TRUE(qwen3.attention_bias && qwen3.attention_output_bias && qwen3.qk_norm);
  EXPECT_TRUE(model("attention_bias = true\n").attention_output_bias);
  const Deck deck = deck_of("[model]\nfamily = \"qwen3\"\n");
  EXPECT_EQ(source_of(deck, "model.qk_norm"), "model.family");
  EXPECT_EQ(deck_of("[model]\npreset = \"qwen2.5-7b\"\n").model.attention_bias, true);
  EXPECT_EQ(deck_of("[model]\npreset = \"mistral-7b-v0.1\"\n").model.sliding_window, 4096);
}

TEST(Families, RefuseWhatTheyHaveNot) {
  struct Row {
    const char* keys;
    const char* expected;
  };
  const Row rows[] = {
      {"qk_norm = true",
       "input.toml:8: model.qk_norm = true does not go with model.family = \"llama\"; legal: "
       "false, or model.family = qwen3 or qwen3_moe or gemma3 or olmo2 or olmo3 or olmoe or apertus"},
      {"family = \"qwen3\"\nqk_norm = false",
       "legal: true, or model.family = llama or mistral or ministral or mixtral or qwen2 or qwen2_moe or "
       "gemma2"},
      {"sliding_window = 8",
       "model.sliding_window = 8 does not go with model.family = \"llama\"; legal: 0, or "
       "model.family = mistral or ministral or mixtral or qwen2 or qwen3"},
      {"family = \"mistral\"\nattention_bias = true",
       "legal: false, or model.family = llama or qwen2 or qwen3 or qwen2_moe or qwen3_moe or gemma2"},
      {"attention_bias = true\nattention_output_bias = false",
       "input.toml:9: model.attention_output_bias = false does not go with model.family = \"llama\"; legal: "
       "true, or model.family = qwen2"},
      {"family = \"mistral\"\nsliding_window = 8\nfull_attention_layers = 2",
       "legal: 0, or model.family = qwen2 or qwen3"},
      {"family = \"qwen2\"\nfull_attention_layers = 2", "needs a model.sliding_window"},
      {"family = \"qwen2\"\nsliding_window = 8\nfull_attention_layers = 8", "nearest legal: 7"},
      {"family = \"gpt3\"", "llama, mistral, ministral, mixtral, qwen2, qwen3"},
  };
  for (const Row& row : rows) {
    const std::string message = deck_error(std::string("[model]\n") + row.keys + "\n");
    EXPECT_NE(message.find(row.expected), std::string::npos) << row.keys << ": " << message;
  }
  EXPECT_NE(deck_error("[model]\npreset = \"qwen3-8b\"\n", {"--model.qk_norm=false"})
                .find("command line: model.qk_norm = false"),
            std::string::npos);
}

TEST(Families, RefuseWhatMakesNoSense) {
  struct Combination {
    const char *keys, *expected;
  };
  const Combination combinations[] = {
      {"family = \"gpt2\"\nmax_position_embeddings = 4", "the rows of \"gpt2\"'s table of positions"},
      {"family = \"gpt2\"\nhead_dim = 32", "model.head_dim = 32 does not go with model.family = \"gpt2\""},
      {"family = \"gpt2\"\nrope_theta = 3", "model.rope_theta = 3 does not go with"},
      {"family = \"gemma2\"\nlayer_types = [\"chunked\"]", "model.layer_types holds \"chunked\""},
      {"family = \"qwen2\"\nsliding_window = 4\nfull_attention_layers = 2\n"
       "layer_types = [\"sliding_attention\"]",
       "both say which layers have the window"},
      {"family = \"qwen2\"\nlayer_types = [\"sliding_attention\"]", "which need a model.sliding_window"},
      {"family = \"gemma2\"\nlayer_types = [\"full_attention\"]", "has no effect"},
      {"family = \"smollm3\"\nno_rope_layers = [0.5]", "each must be 0 or 1"},
      {"family = \"smollm3\"\nnum_hidden_layers = 1\nno_rope_layers = [1, 0]", "has 2 entries for 1 layers"},
      {"family = \"phi3\"\npartial_rotary_factor = 0.01", "are 0 elements"},
      {"rope_scaling = \"longrope\"", "longrope needs 32 in each"},
      {"rope_scaling = \"dynamic\"", "counts from model.max_position_embeddings"},
      {"rope_scaling = \"yarn\"\nrope_beta_slow = 40.0", "must be above model.rope_beta_slow"},
      {"partial_rotary_factor = 0.5", "legal: 1, or model.family = phi3 or glm or glm4"},
      {"family = \"starcoder2\"\nmlp_bias = false", "model.mlp_bias = false does not go with"},
      {"num_experts = 8", "legal: 0, or model.family = mixtral or"},
      {"family = \"qwen3_moe\"\nnum_experts = 0", "model.num_experts = 0, but layers of \"qwen3_moe\""},
      {"family = \"qwen3_moe\"\nnum_experts = 1024", "num_experts"},
      {"family = \"deepseek_v3\"\nkv_lora_rank = 0", "model.kv_lora_rank = 0, but attention of"},
      {"family = \"deepseek_v3\"\nv_head_dim = 256", "model.v_head_dim (256) is above"},
      {"family = \"deepseek_v3\"\nqk_rope_head_dim = 31", "is odd; rotary embedding turns pairs"},
      {"family = \"deepseek_v3\"\nn_group = 0", "model.n_group (0) must divide"},
      {"family = \"deepseek_v3\"\nnum_experts = 32\nn_group = 32\ntopk_group = 16", "groups of 2 or more"},
      {"family = \"deepseek_v2\"\ntopk_method = \"group_limited_greedy\"", "1 for both: one group"},
      {"family = \"deepseek_v3\"\nnum_key_value_heads = 1", "a head of keys for each of queries"},
      {"family = \"olmoe\"\nnum_experts = 4", "model.num_experts_per_tok (8) is above model.num_experts (4)"},
      {"family = \"mixtral\"\nmoe_intermediate_size = 64",
       "model.moe_intermediate_size = 64 does not go with"},
      {"family = \"qwen2_moe\"\nshared_expert_intermediate_size = 0", "shared_expert_intermediate_size = 0"},
      {"family = \"qwen3_moe\"\nmlp_only_layers = [0.5]", "whole numbers from 0 to 7"},
      {"family = \"qwen3_moe\"\nmlp_only_layers = [8]", "whole numbers from 0 to 7"},
      {"family = \"qwen3_moe\"\ndecoder_sparse_step = 9", "no layer of 8 has experts"},
      {"family = \"deepseek_v2\"\n[experts]\nbias_update_speed = 0.001",
       "which models with model.topk_method = \"noaux_tc\" have, not with \"greedy\""},
      {"family = \"deepseek_v3\"\n[experts]\nbias_update_speed = 0.001\n[lora]\nrank = 2\nrandom_base = true",
       "changes the model beside its adapters (lora.rank = 2)"},
  };
  for (const Combination& row : combinations) {
    const std::string message = deck_error(std::string("[model]\n") + row.keys + "\n");
    EXPECT_NE(message.find(row.expected), std::string::npos) << row.keys << ": " << message;
  }
  const std::string several =
      deck_error("[model]\nfamily = \"olmoe\"\n[experts]\nbalance = \"sequence\"\n", {"batch.micro=2"});
  EXPECT_NE(several.find("batch.micro = 2 puts several in a micro-batch; nearest legal: 1"),
            std::string::npos)
      << several;
}

}  // namespace
}  // namespace ztrain::config::config_architectures_test
