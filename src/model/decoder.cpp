#include <fmt/format.h>

#include <utility>
#include <vector>

#include "config/architectures.hpp"
#include "model/builder.hpp"
#include "model/family.hpp"

namespace ztrain::model {
namespace {

/// What the blocks share.
struct Shared {
  ValueId document_start;
  ValueId table;
};

struct Block {
  std::string name;
  Attention attention;
};

RopeTable rope_of(const config::Model& m, const Request& r) {
  RopeTable rope{m.rope_theta,           m.rope_scaling,          m.rope_factor,
                 m.rope_low_freq_factor, m.rope_high_freq_factor, m.rope_original_max_position};
  rope.width = static_cast<std::int64_t>(static_cast<double>(m.head_dim) * m.partial_rotary_factor);
  if (m.rope_scaling == "none" || m.rope_scaling == "llama3") return rope;
  rope.max_position = m.max_position_embeddings;
  rope.length = r.sequence;
  rope.attention_factor = m.rope_attention_factor;
  if (m.rope_beta_fast > 0) rope.beta_fast = m.rope_beta_fast;
  if (m.rope_beta_slow > 0) rope.beta_slow = m.rope_beta_slow;
  rope.mscale = m.rope_mscale;
  rope.mscale_all_dim = m.rope_mscale_all_dim;
  rope.truncate = m.rope_truncate;
  rope.short_factors = m.rope_short_factor;
  rope.long_factors = m.rope_long_factor;
  return rope;
}

/// A linear layer before it is applied: parameters lie in the order in which they are made.
struct Projection {
  std::string name;
  ValueId weight, bias = -1;
};

/// Layers of one input. Weights come first, then biases: those of a kind lie side by side, so that the
/// products can be joined (program/passes/join_products.hpp).
std::vector<Projection> projections(Builder& b, const config::Model& m, ValueId x,
                                    const std::vector<std::pair<std::string, std::int64_t>>& outputs,
                                    bool bias) {
  std::vector<Projection> made;
  for (const auto& [name, out] : outputs)
    made.push_back(
        {name, b.parameter(name + ".weight", {out, b.shape(x)[1]}, Init::normal, m.initializer_range)});
  if (bias)
    for (Projection& p : made) p.bias = b.parameter(p.name + ".bias", {b.shape(p.weight)[0]}, Init::zeros);
  return made;
}

ValueId apply(Builder& b, const Projection& p, ValueId x) {
  return b.linear(p.name, x, p.weight, p.bias);
}

ValueId norm(Builder& b, const std::string& name, ValueId x, const config::Model& m) {
  b.piece("norm");
  return b.rms_norm(name, x, b.parameter(name + ".weight", {m.hidden_size}, Init::ones), {m.rms_norm_eps});
}

/// Queries ('q') or keys ('k') of all heads: projected, normalised head by head and turned as the model has
/// it.
ValueId turned(Builder& b, const config::Model& m, const Block& block, char which,
               const Projection& projection, ValueId x, const Shared& shared) {
  const std::string p = fmt::format("{}.self_attn.{}", block.name, which);
  ValueId y = apply(b, projection, x);
  if (m.qk_norm)
    y = b.rms_norm(p + "_norm", y, b.parameter(p + "_norm.weight", {m.head_dim}, Init::ones),
                   {m.rms_norm_eps, true});
  Rope rope;
  if (b.shape(shared.table)[1] < m.head_dim) rope.head_dim = m.head_dim;
  rope.interleaved = config::find_architecture(m.family).style.interleaved_rope;
  return block.attention.rotary ? b.rope(p + "_rope", y, shared.table, rope) : y;
}

ValueId attention(Builder& b, const config::Model& m, const Block& block, ValueId x, const Shared& shared) {
  const std::string p = block.name + ".self_attn";
  b.piece("qkv");
  const std::int64_t q_width = m.num_attention_heads * m.head_dim,
                     kv_width = m.num_key_value_heads * m.head_dim;
  const auto qkv =
      projections(b, m, x, {{p + ".q_proj", q_width}, {p + ".k_proj", kv_width}, {p + ".v_proj", kv_width}},
                  m.attention_bias);
  const ValueId q = turned(b, m, block, 'q', qkv[0], x, shared);
  const ValueId k = turned(b, m, block, 'k', qkv[1], x, shared);
  const ValueId v = apply(b, qkv[2], x);
  b.piece("attention");
  const ValueId o = b.attention(p + ".attention", q, k, v, shared.document_start, block.attention);
  b.piece("output");
  return apply(b, projections(b, m, o, {{p + ".o_proj", m.hidden_size}}, m.attention_output_bias)[0], o);
}

ValueId feed_forward(Builder& b, const config::Model& m, const std::string& prefix, ValueId x) {
  const std::string p = prefix + ".mlp";
  b.piece("gate_up");
  const auto gate_up = projections(
      b, m, x, {{p + ".gate_proj", m.intermediate_size}, {p + ".up_proj", m.intermediate_size}}, false);
  const ValueId gate = apply(b, gate_up[0], x), up = apply(b, gate_up[1], x);
  b.piece("swiglu");
  const ValueId product = b.gated_activation(p + ".swiglu", gate, up, "silu");
  b.piece("down");
  return apply(b, projections(b, m, product, {{p + ".down_proj", m.hidden_size}}, false)[0], product);
}

ValueId emit(Builder& b, const config::Model& m, const Block& block, ValueId x, const Shared& shared) {
  const ValueId a = attention(b, m, block, norm(b, block.name + ".input_layernorm", x, m), shared);
  b.piece("residual");
  const ValueId x1 = b.add(block.name + ".attention_residual", x, a);
  const ValueId f = feed_forward(b, m, block.name, norm(b, block.name + ".post_attention_layernorm", x1, m));
  b.piece("residual");
  return b.add(block.name + ".mlp_residual", x1, f);
}

ValueId head(Builder& b, const config::Model& m, const Request& r, ValueId x, ValueId embedding) {
  const bool loss = r.objective == Objective::loss;
  if (!loss) x = b.select_row("index", x, b.input("index", DType::i32, {1}));
  const ValueId h = norm(b, "model.norm", x, m);
  b.piece("head");
  const ValueId weight = m.tie_word_embeddings
                             ? embedding
                             : b.parameter(config::head_weight, {m.vocab_size, m.hidden_size}, Init::normal,
                                           m.initializer_range);
  if (!loss) return b.linear("lm_head", h, weight);
  const ValueId targets = b.input("targets", DType::i32, {r.tokens});
  return b.head_loss("lm_head", h, weight, targets, b.input("weights", DType::f32, {r.tokens}));
}

}  // namespace

Graph decoder(const config::Model& m, const Request& r) {
  Builder b(r.compute);
  const ValueId tokens = b.input("tokens", DType::i32, {r.tokens});
  const ValueId positions = b.input("positions", DType::i32, {r.tokens});
  const ValueId document_start = b.input("document_start", DType::i32, {r.tokens});

  b.block("model.embed_tokens");
  const Shared shared{document_start, b.rope_table("rope_table", positions, rope_of(m, r))};
  const ValueId embedding =
      b.parameter(config::embedding_weight, {m.vocab_size, m.hidden_size}, Init::normal, m.initializer_range);
  const Family& family = find_family(m.family);
  ValueId x = b.embedding("model.embed_tokens", tokens, embedding);
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer) {
    Block block{fmt::format("model.layers.{}", layer), family.attention(m, layer)};
    block.attention.sequence = r.sequence;
    block.attention.documents = r.documents;
    block.attention.deterministic = r.deterministic;
    b.block(block.name);
    x = emit(b, m, block, x, shared);
  }
  b.block("lm_head");
  const ValueId result = head(b, m, r, x, embedding);
  return std::move(b).finish(result);
}

}  // namespace ztrain::model
