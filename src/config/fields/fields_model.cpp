#include <fmt/format.h>

#include "config/architectures.hpp"
#include "config/fields/fields_rows.hpp"
#include "config/fields/presets.hpp"

namespace ztrain::config::rows {
namespace {

Legal families() {
  Legal legal;
  for (const Architecture& a : architectures()) legal.choices.emplace_back(a.family);
  return legal;
}

std::string family_doc() {
  std::string doc = "Architecture.";
  for (const Architecture& a : architectures()) doc += fmt::format(" {}: {}", a.family, a.doc);
  return doc;
}

}  // namespace

std::vector<Field> attention() {
  return {
      numeric({KEY_OF(model, attention_bias), "false", "", any(),
               "The projections to queries, keys and values have biases. Where it is not given, it is what "
               "the family always has."}),
      numeric({KEY_OF(model, attention_output_bias), "false", "", any(),
               "The output projection of attention has a bias. Where it is not given: as "
               "model.attention_bias for llama and qwen3, which have no other combination."}),
      numeric({KEY_OF(model, qk_norm), "false", "", any(),
               "Each head of queries and keys is RMS-normalised before the rotary embedding. Where it is not "
               "given, it is what the family has."}),
      numeric({KEY_OF(model, sliding_window), "0", "tokens", between(0, 1 << 30),
               "How many tokens a token attends to, itself included. 0: all before it. Not for llama."}),
      numeric({KEY_OF(model, full_attention_layers), "0", "layers", between(0, 1e4),
               "How many of the first layers attend to all tokens in spite of model.sliding_window (qwen2, "
               "qwen3)."}),
  };
}

std::vector<Field> trained() {
  return {
      numeric({KEY_OF(model, trainable), "[]", "", any(),
               "Patterns (*, ?, [...]) of the names of parameters that are trained, such as "
               "[\"model.layers.3?.*\", \"lm_head.weight\"]; the others are frozen: they have no gradient, "
               "master copy or optimizer state. Empty: all, or with lora.rank none but the adapters, which "
               "always are."}),
      numeric({KEY_OF(model, frozen), "[]", "", any(),
               "Patterns of the names of parameters that are frozen, whatever model.trainable says."}),
  };
}

std::vector<Field> model() {
  return {
      numeric({KEY_OF(model, family), R"("llama")", "", families(), family_doc()}),
      free({KEY_OF(model, preset), R"("custom")", "", one_of(model_preset_names()),
            "Named model whose dims are taken; keys given below win over it. custom: the keys below and "
            "their defaults. Names and meanings are those of Hugging Face's config.json."}),
      free(read_path(
          {KEY_OF(model, from), R"("")", "", any(),
           "Folder of a Hugging Face model (" + hf_classes() +
               "; config.json, and model.safetensors or its shards with model.safetensors.index.json), or "
               "one checkpoint of ztrain (a folder step_N). It gives the family and the keys below: one that "
               "is given too must agree. A run that resumes no checkpoint starts from its weights instead of "
               "random ones, at step 0 and with an optimizer of its own. Empty: none."})),
      numeric({KEY_OF(model, hidden_size), "512", "", between(1, 1 << 24), "Width of the residual stream."}),
      numeric({KEY_OF(model, intermediate_size), "1408", "", between(1, 1 << 24),
               "Width of the feed-forward layer."}),
      numeric({KEY_OF(model, num_hidden_layers), "8", "", between(1, 1000), "Number of transformer blocks."}),
      numeric({KEY_OF(model, num_attention_heads), "8", "", between(1, 1 << 16), "Number of query heads."}),
      numeric({KEY_OF(model, num_key_value_heads), "0", "", between(0, 1 << 16),
               "Number of key and value heads. 0: as many as query heads."}),
      numeric({KEY_OF(model, head_dim), "0", "", between(0, 1 << 16),
               "Width of one head. 0: hidden_size / num_attention_heads."}),
      numeric({KEY_OF(model, vocab_size), "0", "tokens", between(0, 1 << 30),
               "Number of token ids. 0: what the data say (an attribute of prepared files, 257 for text, "
               "50257 and 128256 for llm.c's files)."}),
      numeric({KEY_OF(model, rms_norm_eps), "1e-5", "", share(),
               "Added to the mean square in RMS normalisation."}),
      numeric(
          {KEY_OF(model, rope_theta), "10000", "", above(0), "Base of the rotary embedding's wavelengths."}),
      numeric({KEY_OF(model, rope_scaling), R"("none")", "", one_of({"none", "llama3"}),
               "How long wavelengths are stretched; llama3 uses the four keys below."}),
      numeric({KEY_OF(model, rope_factor), "8", "", from(1), "Stretch of the longest wavelengths."}),
      numeric({KEY_OF(model, rope_low_freq_factor), "1", "", above(0),
               "Wavelengths above rope_original_max_position / this are stretched in full."}),
      numeric({KEY_OF(model, rope_high_freq_factor), "4", "", above(0),
               "Wavelengths below rope_original_max_position / this are left alone."}),
      numeric({KEY_OF(model, rope_original_max_position), "8192", "tokens", between(1, 1 << 30),
               "Context length the unstretched embedding was trained with."}),
      numeric({KEY_OF(model, initializer_range), "0.02", "", from(0),
               "Standard deviation of the initial weights."}),
      numeric({KEY_OF(model, tie_word_embeddings), "false", "", any(),
               "The head uses the embedding's weight. false beside a model.from whose config.json says true: "
               "its files hold a head of their own, which is kept. true: such a head is left out."}),
  };
}

std::vector<Field> lora() {
  return {
      numeric({KEY_OF(lora, rank), "0", "", between(0, 1 << 16),
               "Inner width of the adapters: beside the weight W [n, k] of a target stand lora_A [rank, k] "
               "and lora_B [n, rank], and the layer computes x W^T + alpha / rank (x lora_A^T) lora_B^T. 0: "
               "no adapters."}),
      numeric({KEY_OF(lora, alpha), "16", "", above(0), "Scale of what the adapters add, times rank."}),
      numeric({KEY_OF(lora, dropout), "0.0", "", below_one(),
               "Share of the elements of an adapter's input that are zeroed while training."}),
      numeric({KEY_OF(lora, targets),
               R"(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])", "", any(),
               "Linear layers that get adapters: the last parts of their names, or patterns of the whole, "
               "such as \"model.layers.1?.mlp.*\"."}),
      free({KEY_OF(lora, random_base), "false", "", any(),
            "Train adapters beside weights that are drawn at random. Without it a run with adapters needs "
            "model.from, since adapters of random weights are of no use but to measure and to test."}),
  };
}

}  // namespace ztrain::config::rows
