// Refused combinations of keys of the run's length, data and model.

#include <algorithm>
#include <cmath>

#include "config/architectures.hpp"
#include "config/block_layout.hpp"
#include "config/fields/model_keys.hpp"
#include "config/layers.hpp"
#include "config/validate/refusals.hpp"

namespace ztrain::config {
namespace {

bool turns(const Deck& d) {
  return !find_architecture(d.model.family).style.learned_positions;
}
bool some_slide(const Model& m) {
  return std::ranges::find(m.layer_types, sliding_attention) != m.layer_types.end();
}
/// Returns the first entry of layer_types that is no kind of layers; "": none.
std::string wrong_type(const Model& m) {
  for (const std::string& type : m.layer_types)
    if (type != sliding_attention && type != full_attention) return type;
  return "";
}

/// Returns the key of experts that is 0 although the family has it; "": none.
std::string_view missing_of_experts(const Model& m) {
  const Architecture& a = find_architecture(m.family);
  if (find_key(a, "model.num_experts") == nullptr) return "";
  if (m.num_experts == 0) return "model.num_experts";
  if (m.num_experts_per_tok == 0) return "model.num_experts_per_tok";
  if (m.moe_intermediate_size == 0) return "model.moe_intermediate_size";
  return !a.style.shared_expert.empty() && shared_expert_width(m) == 0
             ? "model.shared_expert_intermediate_size"
             : "";
}

/// Returns the key of latent attention that is 0 although the family has it; "": none.
std::string_view missing_of_latent(const Model& m) {
  if (find_key(find_architecture(m.family), "model.kv_lora_rank") == nullptr) return "";
  if (m.kv_lora_rank == 0) return "model.kv_lora_rank";
  if (m.qk_nope_head_dim == 0) return "model.qk_nope_head_dim";
  if (m.qk_rope_head_dim == 0) return "model.qk_rope_head_dim";
  return m.v_head_dim == 0 ? "model.v_head_dim" : "";
}

/// Returns how many experts a group must have: noaux_tc adds the scores of two.
std::int64_t least_group(const Model& m) {
  return m.topk_method == "noaux_tc" ? 2 : 1;
}

constexpr Refusal model_table[]{
    {"run.steps run.tokens run.epochs",
     "{given} contradict each other; give exactly one of run.steps, run.tokens, run.epochs{way_out}"},
    {"run.epochs run.steps run.tokens",
     "{at}: the length of the run is missing; give one of run.steps, run.tokens, run.epochs"},
    {"data.weights data.train",
     "{at}: data.weights has {weights} numbers for the {entries} entries of data.train; give one for each, "
     "or none",
     [](const Deck& d) { return !d.data.weights.empty() && d.data.weights.size() != d.data.train.size(); },
     [](const Deck& d) {
       return Words{{"weights", d.data.weights.size()}, {"entries", d.data.train.size()}};
     }},
    {"evaluation.interval data.validation data.validation_fraction",
     "{at}: evaluation.interval = {evaluation.interval} needs validation data: give data.validation, or a "
     "data.validation_fraction above 0",
     [](const Deck& d) {
       return d.evaluation.interval != 0 && d.data.validation.empty() && d.data.validation_fraction <= 0;
     }},
    {"model.family model.*",
     "{at}: {key} = {value} does not go with model.family = {model.family}; legal: {legal}"},
    {"model.full_attention_layers model.sliding_window",
     "{at}: model.full_attention_layers = {model.full_attention_layers} needs a model.sliding_window, and "
     "that is 0; nearest legal: 0",
     [](const Deck& d) { return d.model.full_attention_layers != 0 && d.model.sliding_window == 0; }},
    {"model.full_attention_layers model.num_hidden_layers",
     "{at}: model.full_attention_layers = {model.full_attention_layers} leaves no layer of "
     "{model.num_hidden_layers} to model.sliding_window; nearest legal: {legal}",
     [](const Deck& d) { return d.model.full_attention_layers >= d.model.num_hidden_layers; },
     [](const Deck& d) {
       return Words{{"legal", d.model.num_hidden_layers - 1}};
     }},
    {"model.layer_types model.family",
     "{at}: model.layer_types holds \"{type}\"; legal: full_attention, sliding_attention",
     [](const Deck& d) { return !wrong_type(d.model).empty(); },
     [](const Deck& d) {
       return Words{{"type", wrong_type(d.model)}};
     }},
    {"model.layer_types model.num_hidden_layers",
     "{at}: model.layer_types has {types} entries for {model.num_hidden_layers} layers; give one for each, "
     "or fewer, which are repeated",
     [](const Deck& d) { return std::ssize(d.model.layer_types) > d.model.num_hidden_layers; },
     [](const Deck& d) {
       return Words{{"types", d.model.layer_types.size()}};
     }},
    {"model.layer_types model.full_attention_layers",
     "{at}: model.layer_types and model.full_attention_layers = {model.full_attention_layers} both say which "
     "layers have the window; give one of them",
     [](const Deck& d) { return !d.model.layer_types.empty() && d.model.full_attention_layers != 0; }},
    {"model.layer_types model.sliding_window",
     "{at}: model.layer_types has layers with sliding_attention, which need a model.sliding_window, and that "
     "is 0",
     [](const Deck& d) { return d.model.sliding_window == 0 && some_slide(d.model); }},
    {"model.sliding_window model.layer_types",
     "{at}: model.sliding_window = {model.sliding_window} has no effect, since model.layer_types has no "
     "layer with sliding_attention; nearest legal: 0",
     [](const Deck& d) {
       return d.model.sliding_window != 0 && !d.model.layer_types.empty() && !some_slide(d.model);
     }},
    {"sparse_attention.block data.sequence",
     "{at}: sparse_attention.block = {sparse_attention.block} does not divide data.sequence = "
     "{data.sequence}; rows of a layout begin anew with each sequence, which has whole blocks therefore",
     [](const Deck& d) {
       return d.sparse_attention.is_on() && d.data.sequence % d.sparse_attention.block != 0;
     }},
    {"sparse_attention.num_global_blocks sparse_attention.num_local_blocks sparse_attention.mode",
     "{at}: sparse_attention.num_global_blocks = {sparse_attention.num_global_blocks} of fixed are the last "
     "blocks of a window, which has sparse_attention.num_local_blocks = {sparse_attention.num_local_blocks}",
     [](const Deck& d) {
       const SparseAttention& s = d.sparse_attention;
       return s.mode == "fixed" && s.num_global_blocks > s.num_local_blocks;
     }},
    {"sparse_attention.mode sparse_attention.layout",
     "{at}: sparse_attention.mode = {sparse_attention.mode} needs the name of a file in "
     "sparse_attention.layout",
     [](const Deck& d) { return d.sparse_attention.mode == "file" && d.sparse_attention.layout.empty(); }},
    {"sparse_attention.layout sparse_attention.mode",
     "{at}: sparse_attention.layout = {sparse_attention.layout} is read only if sparse_attention.mode is "
     "\"file\", and that is {sparse_attention.mode}",
     [](const Deck& d) { return d.sparse_attention.mode != "file" && !d.sparse_attention.layout.empty(); }},
    {"sparse_attention.layout sparse_attention.block data.sequence",
     "{at}: sparse_attention.layout has {rows} rows, and data.sequence = {data.sequence} has {blocks} blocks "
     "of {sparse_attention.block} tokens, each of which needs a row",
     [](const Deck& d) {
       const SparseAttention& s = d.sparse_attention;
       return !s.rows.empty() && blocks_of(s.rows) < d.data.sequence / s.block;
     },
     [](const Deck& d) {
       const SparseAttention& s = d.sparse_attention;
       return Words{{"rows", blocks_of(s.rows)}, {"blocks", d.data.sequence / s.block}};
     }},
    {"data.sequence sparse_attention.block sparse_attention.mode",
     "{at}: data.sequence = {data.sequence} has {blocks} blocks of sparse_attention.block = "
     "{sparse_attention.block} tokens, and a layout has at most {most} rows, because each attention of a "
     "Program "
     "holds its bits; take larger blocks",
     [](const Deck& d) {
       return d.sparse_attention.is_on() && d.data.sequence / d.sparse_attention.block > most_blocks;
     },
     [](const Deck& d) {
       return Words{{"blocks", d.data.sequence / d.sparse_attention.block}, {"most", most_blocks}};
     }},
    {"sparse_attention.mode cluster.preset",
     "{at}: sparse_attention.mode = {sparse_attention.mode} works on CPU ranks only, as a layout lies in "
     "host "
     "memory, and this job is for GPUs; nearest legal: \"none\""},
    {"model.no_rope_layers model.family",
     "{at}: model.no_rope_layers = {model.no_rope_layers}: each must be 0 or 1",
     [](const Deck& d) {
       return !std::ranges::all_of(d.model.no_rope_layers, [](double x) { return x == 0 || x == 1; });
     }},
    {"model.no_rope_layers model.num_hidden_layers",
     "{at}: model.no_rope_layers has {entries} entries for {model.num_hidden_layers} layers; give one for "
     "each, or fewer, which are repeated",
     [](const Deck& d) { return std::ssize(d.model.no_rope_layers) > d.model.num_hidden_layers; },
     [](const Deck& d) {
       return Words{{"entries", d.model.no_rope_layers.size()}};
     }},
    {"model.num_experts model.num_experts_per_tok model.moe_intermediate_size model.family",
     "{at}: {key} = 0, but layers of {model.family} have experts; give a number above 0",
     [](const Deck& d) { return !missing_of_experts(d.model).empty(); },
     [](const Deck& d) {
       return Words{{"key", missing_of_experts(d.model)}};
     }},
    {"model.num_experts_per_tok model.num_experts",
     "{at}: model.num_experts_per_tok ({model.num_experts_per_tok}) is above model.num_experts "
     "({model.num_experts}); nearest legal: {model.num_experts}",
     [](const Deck& d) { return d.model.num_experts_per_tok > d.model.num_experts; }},
    {"experts.z_loss model.num_experts",
     "{at}: experts.z_loss = {experts.z_loss} is of routers, and the model has no experts; nearest legal: 0",
     [](const Deck& d) { return d.experts.z_loss != 0 && d.model.num_experts == 0; }},
    {"experts.balance batch.micro",
     "{at}: experts.balance = \"sequence\" is a loss of each sequence, and batch.micro = {batch.micro} puts "
     "several in a micro-batch; nearest legal: 1",
     [](const Deck& d) { return d.experts.balance == "sequence" && d.batch.micro > 1; }},
    {"experts.bias_update_speed model.topk_method",
     "{at}: experts.bias_update_speed = {experts.bias_update_speed} moves biases of the choice of experts, "
     "which models with model.topk_method = \"noaux_tc\" have, not with {model.topk_method}; nearest legal: "
     "0",
     [](const Deck& d) { return d.experts.bias_update_speed != 0 && d.model.topk_method != "noaux_tc"; }},
    {"experts.bias_update_speed lora.rank",
     "{at}: experts.bias_update_speed = {experts.bias_update_speed} changes the model beside its adapters "
     "(lora.rank = {lora.rank}), which alone would not hold that; nearest legal: 0",
     [](const Deck& d) { return d.experts.bias_update_speed != 0 && d.lora.rank > 0; }},
    {"model.mlp_only_layers model.num_hidden_layers",
     "{at}: model.mlp_only_layers = {model.mlp_only_layers}: must be numbers of layers, whole numbers from 0 "
     "to {last}",
     [](const Deck& d) {
       return !std::ranges::all_of(d.model.mlp_only_layers, [&](double layer) {
         return layer == std::floor(layer) && layer < static_cast<double>(d.model.num_hidden_layers);
       });
     },
     [](const Deck& d) {
       return Words{{"last", d.model.num_hidden_layers - 1}};
     }},
    {"model.decoder_sparse_step model.mlp_only_layers model.first_k_dense_replace model.num_hidden_layers",
     "{at}: no layer of {model.num_hidden_layers} has experts: model.decoder_sparse_step = "
     "{model.decoder_sparse_step}, model.mlp_only_layers = {model.mlp_only_layers} and "
     "model.first_k_dense_replace = {model.first_k_dense_replace} make all feed-forwards dense",
     [](const Deck& d) { return d.model.num_experts > 0 && layers_with_experts(d.model) == 0; }},
    {"model.kv_lora_rank model.qk_nope_head_dim model.qk_rope_head_dim model.v_head_dim model.family",
     "{at}: {key} = 0, but attention of {model.family} is latent; give a number above 0",
     [](const Deck& d) { return !missing_of_latent(d.model).empty(); },
     [](const Deck& d) {
       return Words{{"key", missing_of_latent(d.model)}};
     }},
    {"model.v_head_dim model.qk_nope_head_dim model.qk_rope_head_dim",
     "{at}: model.v_head_dim ({model.v_head_dim}) is above model.qk_nope_head_dim + model.qk_rope_head_dim "
     "({model.qk_nope_head_dim} + {model.qk_rope_head_dim}), the width of keys that values are padded to",
     [](const Deck& d) {
       return is_latent(d.model) && d.model.v_head_dim > d.model.qk_nope_head_dim + d.model.qk_rope_head_dim;
     }},
    {"model.num_key_value_heads model.num_attention_heads model.kv_lora_rank",
     "{at}: latent attention has a head of keys for each of queries: model.num_key_value_heads "
     "({model.num_key_value_heads}) must be {model.num_attention_heads}",
     [](const Deck& d) {
       return is_latent(d.model) && d.model.num_key_value_heads != d.model.num_attention_heads;
     }},
    {"model.qk_rope_head_dim model.kv_lora_rank",
     "{at}: model.qk_rope_head_dim ({model.qk_rope_head_dim}) is odd; rotary embedding turns pairs",
     [](const Deck& d) { return d.model.qk_rope_head_dim % 2 != 0; }},
    {"model.n_group model.topk_group model.num_experts model.topk_method",
     "{at}: model.topk_method = {model.topk_method} chooses from groups: model.n_group ({model.n_group}) "
     "must divide model.num_experts ({model.num_experts}) into groups of {least} or more, and "
     "model.topk_group "
     "({model.topk_group}) be at most model.n_group and enough for model.num_experts_per_tok "
     "({model.num_experts_per_tok}); 1 for both: one group of all experts",
     [](const Deck& d) {
       const Model& m = d.model;
       if (m.topk_method == "greedy") return false;
       return m.n_group == 0 || m.num_experts % m.n_group != 0 || m.topk_group > m.n_group ||
              m.num_experts / m.n_group < least_group(m) ||
              m.topk_group * (m.num_experts / m.n_group) < m.num_experts_per_tok;
     },
     [](const Deck& d) {
       return Words{{"least", least_group(d.model)}};
     }},
    {"model.attention_multiplier model.query_pre_attn_scalar",
     "{at}: model.attention_multiplier and model.query_pre_attn_scalar both scale the scores of attention; "
     "give one of them",
     [](const Deck& d) { return d.model.attention_multiplier != 0 && d.model.query_pre_attn_scalar != 0; }},
    {"model.num_key_value_heads model.num_attention_heads",
     "{at}: model.num_key_value_heads ({model.num_key_value_heads}) does not divide "
     "model.num_attention_heads ({model.num_attention_heads}); nearest legal: {legal}"},
    {"model.num_attention_heads model.hidden_size",
     "{at}: model.num_attention_heads ({model.num_attention_heads}) does not divide model.hidden_size "
     "({model.hidden_size}); nearest legal: {legal}, or give model.head_dim"},
    {"model.head_dim model.num_attention_heads model.hidden_size",
     "{at}: model.head_dim ({model.head_dim}) is odd; rotary embedding turns pairs: nearest legal: {legal}",
     [](const Deck& d) { return turns(d) && !is_latent(d.model) && d.model.head_dim % 2 != 0; },
     [](const Deck& d) {
       return Words{{"legal", d.model.head_dim + 1}};
     }},
    {"model.partial_rotary_factor model.head_dim",
     "{at}: model.partial_rotary_factor = {model.partial_rotary_factor} of model.head_dim = {model.head_dim} "
     "are {width} elements; rotary embedding turns pairs: the width must be even, and at least 2",
     [](const Deck& d) {
       const std::int64_t width = rotary_width(d.model);
       return turns(d) && d.model.head_dim > 0 && d.model.head_dim % 2 == 0 && (width < 2 || width % 2 != 0);
     },
     [](const Deck& d) {
       return Words{{"width", rotary_width(d.model)}};
     }},
    {"model.rope_short_factor model.rope_long_factor model.head_dim model.partial_rotary_factor",
     "{at}: model.rope_short_factor has {short} numbers and model.rope_long_factor {long}; longrope needs "
     "{pairs} in each, one for each pair of turned elements",
     [](const Deck& d) {
       const Model& m = d.model;
       const std::int64_t pairs = rotary_width(m) / 2;
       return m.rope_scaling == "longrope" && m.head_dim > 0 &&
              (std::ssize(m.rope_short_factor) != pairs || std::ssize(m.rope_long_factor) != pairs);
     },
     [](const Deck& d) {
       return Words{{"short", d.model.rope_short_factor.size()},
                    {"long", d.model.rope_long_factor.size()},
                    {"pairs", rotary_width(d.model) / 2}};
     }},
    {"model.rope_scaling model.max_position_embeddings",
     "{at}: model.rope_scaling = {model.rope_scaling} counts from model.max_position_embeddings, the longest "
     "sequence of the first training, and that is 0",
     [](const Deck& d) { return d.model.rope_scaling == "dynamic" && d.model.max_position_embeddings == 0; }},
    {"model.rope_beta_fast model.rope_beta_slow model.rope_scaling",
     "{at}: model.rope_beta_fast ({model.rope_beta_fast}) must be above model.rope_beta_slow "
     "({model.rope_beta_slow})",
     [](const Deck& d) {
       return d.model.rope_scaling == "yarn" && d.model.rope_beta_fast <= d.model.rope_beta_slow;
     }},
    {"data.sequence model.max_position_embeddings model.family",
     "{at}: data.sequence ({data.sequence}) is above model.max_position_embeddings "
     "({model.max_position_embeddings}), the rows of {model.family}'s table of positions; nearest legal: "
     "{model.max_position_embeddings}",
     [](const Deck& d) { return !turns(d) && d.data.sequence > d.model.max_position_embeddings; }},
    {"model.rope_high_freq_factor model.rope_low_freq_factor model.rope_scaling",
     "{at}: model.rope_high_freq_factor ({model.rope_high_freq_factor}) must be above "
     "model.rope_low_freq_factor ({model.rope_low_freq_factor})",
     [](const Deck& d) {
       const Model& m = d.model;
       return m.rope_scaling == "llama3" && m.rope_high_freq_factor <= m.rope_low_freq_factor;
     }},
};

}  // namespace

std::span<const Refusal> model_refusals() {
  return model_table;
}

}  // namespace ztrain::config
