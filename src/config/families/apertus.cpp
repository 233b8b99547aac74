#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view published_apertus =
    "rope_theta=12e6 rope_scaling=\"llama3\" rope_factor=8 rope_low_freq_factor=1 rope_high_freq_factor=4 "
    "rope_original_max_position=8192";

}  // namespace

std::vector<Architecture> apertus() {
  return {
      {.family = "apertus",
       .hf_class = "ApertusForCausalLM",
       .model_type = "apertus",
       .doc = "llama with each head of queries and keys normalised, and a feed-forward without a gate, whose "
              "activation xIELU has two trained numbers a layer (Apertus).",
       .style = {.before_attention = "attention_layernorm",
                 .before_mlp = "feedforward_layernorm",
                 .activation = "xielu",
                 .gate = ""},
       .buffers = {{"model.layers.*.mlp.act_fn.beta", 0.5}, {"model.layers.*.mlp.act_fn.eps", -1e-6}},
       .keys = {must_say("hidden_act", R"("xielu")"),
                no_attention_dropout,
                attention_bias("false"),
                output_bias_too,
                qk_norm,
                eps("1e-5"),
                theta("12000000.0"),
                {.hf = "rope_parameters",
                 .standard = R"({"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0,
                                 "original_max_position_embeddings": 8192, "low_freq_factor": 1.0,
                                 "high_freq_factor": 4.0})"}},
       .presets = {{"apertus-8b", 4096, 21504, 32, 32, 8, 131072, published_apertus},
                   {"apertus-70b", 8192, 43008, 80, 64, 8, 131072, published_apertus}}},
  };
}

}  // namespace ztrain::config::families
