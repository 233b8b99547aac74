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
               "The output projection of attention has a bias. If it is not given, it is as "
               "model.attention_bias in families whose config.json has one key for both."}),
      numeric({KEY_OF(model, mlp_bias), "false", "", any(),
               "The layers of the feed-forward have biases. Where it is not given, it is what the family "
               "always has."}),
      numeric({KEY_OF(model, qk_norm), "false", "", any(),
               "Queries and keys are RMS-normalised before the rotary embedding: each head, or in some "
               "families all heads together. Where it is not given, it is what the family has."}),
      numeric({KEY_OF(model, q_lora_rank), "0", "", between(0, 1 << 24),
               "Width of the latent that queries are made of. 0: they are made of the layer's input."}),
      numeric({KEY_OF(model, kv_lora_rank), "0", "", between(0, 1 << 24),
               "Width of the latent that keys and values are made of. 0: each has a projection of its own."}),
      numeric({KEY_OF(model, qk_nope_head_dim), "0", "", between(0, 1 << 16),
               "Elements of a head of queries and keys that are not turned."}),
      numeric(
          {KEY_OF(model, qk_rope_head_dim), "0", "", between(0, 1 << 16),
           "Elements behind those of model.qk_nope_head_dim that the rotary embedding turns; all heads of "
           "keys share them."}),
      numeric({KEY_OF(model, v_head_dim), "0", "", between(0, 1 << 16), "Width of a head of values."}),
      numeric(
          {KEY_OF(model, sliding_window), "0", "tokens", between(0, 1 << 30),
           "How many tokens a token attends to, itself included. 0: all before it. If it is not given, it "
           "is what the family has."}),
      numeric({KEY_OF(model, full_attention_layers), "0", "layers", between(0, 1e4),
               "How many of the first layers attend to all tokens in spite of model.sliding_window."}),
      numeric({KEY_OF(model, layer_types), "[]", "", any(),
               "Which layers have the window: sliding_attention or full_attention for each layer. A shorter "
               "list is repeated. Empty: all layers behind model.full_attention_layers have it. If it is not "
               "given, it is what the family has."}),
      numeric({KEY_OF(model, query_pre_attn_scalar), "0", "", from(0),
               "Scores of attention are divided by its root. 0: by the root of head_dim."}),
      numeric({KEY_OF(model, attention_multiplier), "0", "", from(0),
               "Scores of attention are multiplied by it. 0: divided by the root of head_dim."}),
      numeric({KEY_OF(model, attn_logit_softcapping), "0", "", from(0),
               "A score s of attention becomes c tanh(s / c). 0: it stays."}),
      numeric({KEY_OF(model, final_logit_softcapping), "0", "", from(0),
               "A logit x becomes c tanh(x / c). 0: it stays."}),
      numeric({KEY_OF(model, embedding_multiplier), "1", "", above(0), "Embeddings are multiplied by it."}),
      numeric({KEY_OF(model, residual_multiplier), "1", "", above(0),
               "What attention and the feed-forward add to the residual stream is multiplied by it."}),
      numeric({KEY_OF(model, logits_scaling), "1", "", above(0), "Logits are divided by it."}),
  };
}

std::vector<Field> rotary() {
  return {
      numeric(
          {KEY_OF(model, rope_theta), "10000", "", above(0), "Base of the rotary embedding's wavelengths."}),
      numeric({KEY_OF(model, rope_scaling), R"("none")", "",
               one_of({"none", "linear", "dynamic", "yarn", "longrope", "llama3"}),
               "How wavelengths are stretched for sequences longer than the model was first trained on: all "
               "alike (linear), by a larger base (dynamic), more the longer they are (yarn, llama3), or by "
               "measured factors (longrope). The keys of config.json's rope_scaling are the rope_ keys "
               "below."}),
      numeric({KEY_OF(model, rope_factor), "8", "", from(1),
               "Stretch of the longest wavelengths. longrope: sets the size of sines and cosines alone."}),
      numeric({KEY_OF(model, rope_low_freq_factor), "1", "", above(0),
               "llama3: wavelengths above rope_original_max_position / this are stretched in full."}),
      numeric({KEY_OF(model, rope_high_freq_factor), "4", "", above(0),
               "llama3: wavelengths below rope_original_max_position / this are left alone."}),
      numeric({KEY_OF(model, rope_original_max_position), "8192", "tokens", between(1, 1 << 30),
               "Context length the unstretched embedding was trained with."}),
      numeric({KEY_OF(model, rope_attention_factor), "0", "", from(0),
               "yarn, longrope: factor of the sines and cosines. 0: the scaling's own."}),
      numeric({KEY_OF(model, rope_beta_fast), "32", "", above(0),
               "yarn: wavelengths that fit more often than this into rope_original_max_position are kept."}),
      numeric({KEY_OF(model, rope_beta_slow), "1", "", above(0),
               "yarn: wavelengths that fit less often than this are stretched in full."}),
      numeric({KEY_OF(model, rope_mscale), "0", "", from(0), "yarn: see rope_mscale_all_dim."}),
      numeric({KEY_OF(model, rope_mscale_all_dim), "0", "", from(0),
               "yarn: sines and cosines are multiplied by (0.1 rope_mscale L + 1) / (0.1 rope_mscale_all_dim "
               "L + 1), in which L = log(rope_factor). If one of the two keys is 0: by 0.1 L + 1."}),
      numeric({KEY_OF(model, rope_truncate), "true", "", any(),
               "yarn: the range of partly stretched wavelengths begins and ends at whole indices."}),
      numeric({KEY_OF(model, rope_short_factor), "[]", "", above(0),
               "longrope: a factor for each wavelength, for sequences up to rope_original_max_position."}),
      numeric({KEY_OF(model, rope_long_factor), "[]", "", above(0),
               "longrope: the factors for longer sequences (data.sequence)."}),
      numeric({KEY_OF(model, partial_rotary_factor), "1", "", share(),
               "Share of each head's elements that are turned, from the first on."}),
      numeric(
          {KEY_OF(model, rope_local_base_freq), "0", "", from(0),
           "rope_theta of the layers with a window, whose wavelengths are not stretched. 0: all layers are "
           "alike."}),
      numeric({KEY_OF(model, no_rope_layers), "[]", "", between(0, 1),
               "0 for a layer without the rotary embedding, else 1. A shorter list is repeated. Empty: all "
               "have it. If it is not given, it is what the family has."}),
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
               "; config.json, and model.safetensors or its shards with model.safetensors.index.json), one "
               "checkpoint of ztrain (a folder step_N), or adapters of PEFT's (adapter_config.json), which "
               "give "
               "[lora] too. It gives the family and the keys below: one that "
               "is given too must agree. Of the models that a mixture of experts may start from (" +
               upcycled_families() +
               "), model.family may be the mixture. A run that resumes no checkpoint starts from its weights "
               "instead of random ones, at step 0 and with an optimizer of its own. Empty: none."})),
      free(read_path(
          {KEY_OF(model, base), R"("")", "", any(),
           "Folder of the weights that model.from lacks and was trained beside: of a checkpoint without "
           "its frozen weights (checkpoint.frozen), or of PEFT's folder. Empty: the folder that it "
           "names."})),
      free(
          {KEY_OF(model, trust_config), "false", "", any(),
           "Whether a config.json of model.from that names code of its own (auto_map), which ztrain does not "
           "run, is read for its other keys all the same."}),
      free({KEY_OF(model, add_tokens), "0", "tokens", between(0, 1 << 30),
            "Tokens that are added to the vocabulary of model.from: the embedding and the head get so many "
            "rows more, and model.vocab_size is the sum."}),
      free({KEY_OF(model, new_rows), R"("mean")", "", one_of({"mean", "normal"}),
            "What the rows of model.add_tokens begin as. mean: the mean of the rows of model.from. normal: "
            "drawn as initial weights are, from run.seed and model.initializer_range."}),
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
               "Added to the mean square, or to the variance, in normalisation."}),
      numeric({KEY_OF(model, max_position_embeddings), "0", "tokens", between(0, 1 << 30),
               "Longest sequence that the model is made for: rows of a table of positions (gpt2), and the "
               "length above which the scaling dynamic stretches. 0: not known."}),
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
      on_request(
          numeric({KEY_OF(lora, dropout), "0.0", "", below_one(),
                   "Share of the elements of an adapter's input that are zeroed while training. Adapters of "
                   "experts have none."})),
      numeric({KEY_OF(lora, targets),
               R"(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])", "", any(),
               "Linear layers that get adapters: the last parts of their names, or patterns of the whole, "
               "such as \"model.layers.1?.mlp.*\". Where it is not given: all those of the family's blocks "
               "(this list, or with other names of the feed-forward's and of latent attention's). Experts "
               "get adapters if an entry names them, as \"mlp.experts.gate_up_proj\" and "
               "\"mlp.experts.down_proj\" do, PEFT's target_parameters. Routers get none."}),
      numeric(
          {KEY_OF(lora, rslora), "false", "", any(),
           "Scale what the adapters add by alpha / sqrt(rank) instead of alpha / rank (Kalajdzievski, \"A "
           "Rank Stabilization Scaling Factor for Fine-Tuning with LoRA\", 2023)."}),
      numeric(
          {KEY_OF(lora, dora), "false", "", any(),
           "Learn a magnitude for each output of the layers with adapters (DoRA: Liu et al., \"DoRA: "
           "Weight-Decomposed Low-Rank Adaptation\", 2024): each row of W + alpha / rank lora_B lora_A is "
           "divided by its norm and multiplied by its magnitude, which starts as the norm of the row of W. "
           "Gradients take the norm as a constant, as in PEFT. Experts have none."}),
      free({KEY_OF(lora, random_base), "false", "", any(),
            "Train adapters beside weights that are drawn at random. Without it a run with adapters needs "
            "model.from, since adapters of random weights are of no use but to measure and to test."}),
      numeric({KEY_OF(lora, quantization), R"("none")", "", one_of({"none", "nf4", "fp4", "int8"}),
               "How the frozen weights of the blocks' linear layers are kept (QLoRA): as nf4 or fp4, 4 bits "
               "with a scale for each 64 elements, or as int8, 8 bits with a scale for each row. They are "
               "quantised while they are read, and dequantised before each product. Embeddings, norms, "
               "biases, routers and the head stay as they are."}),
      numeric({KEY_OF(lora, double_quantization), "true", "", any(),
               "nf4 and fp4: the scales are kept in 8 bits, with a scale for each 256 of them."}),
  };
}

}  // namespace ztrain::config::rows
