// GPT-2. Radford et al., "Language models are unsupervised multitask learners", 2019.
#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view gpt2_shared = "max_position_embeddings=1024 tie_word_embeddings=true";

/// Linear layers of its files are transposed; those of q, k and v are one.
std::vector<FileTensor> gpt2_files() {
  return {
      {"model.embed_tokens.weight", "transformer.wte.weight"},
      {"model.embed_positions.weight", "transformer.wpe.weight"},
      {"model.layers.*.input_layernorm.weight", "transformer.h.*.ln_1.weight"},
      {"model.layers.*.input_layernorm.bias", "transformer.h.*.ln_1.bias"},
      {"model.layers.*.self_attn.q_proj.weight", "transformer.h.*.attn.c_attn.weight", true},
      {"model.layers.*.self_attn.k_proj.weight", "transformer.h.*.attn.c_attn.weight", true},
      {"model.layers.*.self_attn.v_proj.weight", "transformer.h.*.attn.c_attn.weight", true},
      {"model.layers.*.self_attn.q_proj.bias", "transformer.h.*.attn.c_attn.bias"},
      {"model.layers.*.self_attn.k_proj.bias", "transformer.h.*.attn.c_attn.bias"},
      {"model.layers.*.self_attn.v_proj.bias", "transformer.h.*.attn.c_attn.bias"},
      {"model.layers.*.self_attn.o_proj.weight", "transformer.h.*.attn.c_proj.weight", true},
      {"model.layers.*.self_attn.o_proj.bias", "transformer.h.*.attn.c_proj.bias"},
      {"model.layers.*.post_attention_layernorm.weight", "transformer.h.*.ln_2.weight"},
      {"model.layers.*.post_attention_layernorm.bias", "transformer.h.*.ln_2.bias"},
      {"model.layers.*.mlp.up_proj.weight", "transformer.h.*.mlp.c_fc.weight", true},
      {"model.layers.*.mlp.up_proj.bias", "transformer.h.*.mlp.c_fc.bias"},
      {"model.layers.*.mlp.down_proj.weight", "transformer.h.*.mlp.c_proj.weight", true},
      {"model.layers.*.mlp.down_proj.bias", "transformer.h.*.mlp.c_proj.bias"},
      {"model.norm.weight", "transformer.ln_f.weight"},
      {"model.norm.bias", "transformer.ln_f.bias"},
  };
}

}  // namespace

std::vector<Architecture> gpt2() {
  return {
      {.family = "gpt2",
       .hf_class = "GPT2LMHeadModel",
       .model_type = "gpt2",
       .doc = "LayerNorm, a trained table of positions, attention, a feed-forward of GELU without a gate, "
              "biases in all linear layers (GPT-2).",
       .style = {.norm = NormKind::layer, .activation = "gelu_tanh", .gate = "", .learned_positions = true},
       .files = gpt2_files(),
       .buffers = {{"transformer.h.*.attn.bias"}, {"transformer.h.*.attn.masked_bias"}},
       .keys = {must_say("activation_function", R"("gelu_new")"),
                dropped("resid_pdrop"),
                dropped("embd_pdrop"),
                dropped("attn_pdrop"),
                must_say("scale_attn_weights", "true"),
                must_say("scale_attn_by_inverse_layer_idx", "false"),
                must_say("reorder_and_upcast_attn", "false"),
                must_say("add_cross_attention", "false"),
                always("model.attention_bias", "true"),
                always("model.attention_output_bias", "true"),
                always("model.mlp_bias", "true"),
                always("model.num_key_value_heads", "0"),
                always("model.head_dim", "0"),
                {"model.hidden_size", "n_embd", "768"},
                {"model.intermediate_size", "n_inner", "0", KeyRole::free, "0"},
                {"model.num_hidden_layers", "n_layer", "12"},
                {"model.num_attention_heads", "n_head", "12"},
                {"model.vocab_size", "vocab_size", "50257"},
                {"model.max_position_embeddings", "n_positions", "1024", KeyRole::own},
                {"model.rms_norm_eps", "layer_norm_epsilon", "1e-5"},
                {"model.tie_word_embeddings", "tie_word_embeddings", "true", KeyRole::own}},
       .presets = {{"gpt2", 768, 3072, 12, 12, 12, 50257, gpt2_shared},
                   {"gpt2-medium", 1024, 4096, 24, 16, 16, 50257, gpt2_shared},
                   {"gpt2-large", 1280, 5120, 36, 20, 20, 50257, gpt2_shared},
                   {"gpt2-xl", 1600, 6400, 48, 25, 25, 50257, gpt2_shared}}},
  };
}

}  // namespace ztrain::config::families
