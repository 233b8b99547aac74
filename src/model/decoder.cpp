#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/preference_loss.hpp"
#include "config/architectures.hpp"
#include "config/hf/reward_model.hpp"
#include "config/layers.hpp"
#include "kernels/distillation/record.hpp"
#include "kernels/reward/record.hpp"
#include "model/balance.hpp"
#include "model/builder.hpp"
#include "model/family.hpp"
#include "model/feed_forward.hpp"
#include "model/latent_attention.hpp"

namespace ztrain::model {
namespace {

using config::BlockStyle;
using config::NormKind;

/// What the blocks share.
struct Shared {
  ValueId document_start = -1;
  ValueId table = -1;        ///< angles of the rotary embedding
  ValueId local_table = -1;  ///< those of layers with a window, if they differ
};

struct Block {
  std::string name;
  std::int64_t layer = 0;
  Attention attention;
  ValueId table = -1;  ///< angles of its rotary embedding; -1: nothing is turned
};

class Decoder {
 public:
  Decoder(const config::Model& dims, const Request& request)
      : b_(request.compute),
        m_(dims),
        r_(request),
        style_(config::find_architecture(dims.family).style),
        linear_(b_, dims.initializer_range),
        balance_(b_, request, config::layers_with_experts(dims)),
        feed_forward_(b_, dims, request, balance_) {}

  Graph run() && {
    const ValueId tokens = b_.input("tokens", DType::i32, {r_.tokens});
    const ValueId positions = b_.input("positions", DType::i32, {r_.tokens});
    Shared shared{b_.input("document_start", DType::i32, {r_.tokens})};
    b_.block("model.embed_tokens");
    if (!style_.learned_positions) add_tables(positions, shared);
    const ValueId embedding = b_.parameter(config::embedding_weight, {m_.vocab_size, m_.hidden_size},
                                           Init::normal, m_.initializer_range);
    ValueId x = embed(tokens, positions, embedding);
    const Family& family = find_family(m_.family);
    for (std::int64_t layer = 0; layer < m_.num_hidden_layers; ++layer) {
      Block block{fmt::format("model.layers.{}", layer), layer, family.attention(m_, layer)};
      block.attention.sequence = r_.sequence;
      block.attention.documents = r_.documents;
      block.attention.layout = r_.layout;
      block.attention.deterministic = r_.deterministic;
      if (block.attention.rotary)
        block.table =
            block.attention.window > 0 && shared.local_table >= 0 ? shared.local_table : shared.table;
      b_.block(block.name);
      x = emit(block, x, shared);
    }
    b_.block("lm_head");
    ExpertReport experts = balance_.finish();
    const ValueId result = head(x, embedding);
    return std::move(b_).finish(result, std::move(experts), pairs_, teacher_);
  }

 private:
  /// Adds the table of angles, and a second, unscaled one if layers with a window have their own base.
  void add_tables(ValueId positions, Shared& shared) {
    const std::int64_t width = config::rotary_width(m_);
    shared.table = b_.rope_table("rope_table", positions, scaled_table(width));
    if (m_.rope_local_base_freq <= 0 || m_.sliding_window == 0) return;
    RopeTable local{m_.rope_local_base_freq, "none"};
    local.width = width;
    shared.local_table = b_.rope_table("rope_local_table", positions, local);
  }

  RopeTable scaled_table(std::int64_t width) const {
    RopeTable table{m_.rope_theta,           m_.rope_scaling,          m_.rope_factor,
                    m_.rope_low_freq_factor, m_.rope_high_freq_factor, m_.rope_original_max_position};
    table.width = width;
    if (m_.rope_scaling == "none" || m_.rope_scaling == "llama3") return table;
    table.max_position = m_.max_position_embeddings;
    table.length = r_.longest > 0 ? r_.longest : r_.sequence;
    table.attention_factor = m_.rope_attention_factor;
    table.beta_fast = m_.rope_beta_fast;
    table.beta_slow = m_.rope_beta_slow;
    table.mscale = m_.rope_mscale;
    table.mscale_all_dim = m_.rope_mscale_all_dim;
    table.truncate = m_.rope_truncate;
    table.short_factors = m_.rope_short_factor;
    table.long_factors = m_.rope_long_factor;
    return table;
  }

  ValueId embed(ValueId tokens, ValueId positions, ValueId embedding) {
    ValueId x = b_.embedding("model.embed_tokens", tokens, embedding);
    if (style_.scaled_embedding)
      x = b_.scale("embed_scale", x, b_.rounded(std::sqrt(static_cast<double>(m_.hidden_size))));
    if (m_.embedding_multiplier != 1) x = b_.scale("embedding_multiplier", x, m_.embedding_multiplier);
    if (!style_.learned_positions) return x;
    const ValueId table = b_.parameter(config::positions_weight, {m_.max_position_embeddings, m_.hidden_size},
                                       Init::normal, m_.initializer_range);
    return b_.add("embedded", x, b_.embedding("model.embed_positions", positions, table));
  }

  ValueId gain(const std::string& name, std::int64_t width) {
    return b_.parameter(name + ".weight", {width},
                        style_.norm == NormKind::rms_one_plus ? Init::zeros : Init::ones);
  }

  RmsNorm rms(bool of_heads) const {
    return {.eps = m_.rms_norm_eps, .of_heads = of_heads, .one_plus = style_.norm == NormKind::rms_one_plus};
  }

  ValueId norm(const std::string& name, ValueId x) {
    b_.piece("norm");
    const ValueId weight = gain(name, m_.hidden_size);
    if (style_.norm != NormKind::layer) return b_.rms_norm(name, x, weight, rms(false));
    const ValueId bias = b_.parameter(name + ".bias", {m_.hidden_size}, Init::zeros);
    return b_.layer_norm(name, x, weight, bias, m_.rms_norm_eps);
  }

  /// Returns x if blocks have no such norm.
  ValueId norm_if(const Block& block, std::string_view name, ValueId x) {
    return name.empty() ? x : norm(fmt::format("{}.{}", block.name, name), x);
  }

  /// Queries ('q') or keys ('k') of all heads: projected, normalised and turned as the model has it.
  ValueId turned(const Block& block, char which, const Projection& projection, ValueId x) {
    const std::string p = fmt::format("{}.self_attn.{}", block.name, which);
    ValueId y = linear_.apply(projection, x);
    if (m_.qk_norm && style_.wide_qk_norm)
      y = b_.wide_rms_norm(p + "_norm", y, gain(p + "_norm", b_.shape(y)[1]), m_.rms_norm_eps);
    else if (m_.qk_norm)
      y = b_.rms_norm(p + "_norm", y, gain(p + "_norm", m_.head_dim), rms(true));
    if (block.table < 0) return y;
    const bool whole = b_.shape(block.table)[1] == m_.head_dim;
    return b_.rope(p + "_rope", y, block.table,
                   {.head_dim = whole ? 0 : m_.head_dim, .interleaved = style_.interleaved_rope});
  }

  ValueId attention(const Block& block, ValueId x, const Shared& shared) {
    const std::string p = block.name + ".self_attn";
    if (config::is_latent(m_))
      return latent_attention(b_, m_, p, {x, block.table, shared.document_start}, block.attention);
    b_.piece("qkv");
    const std::int64_t q_width = m_.num_attention_heads * m_.head_dim,
                       kv_width = m_.num_key_value_heads * m_.head_dim;
    const auto qkv =
        linear_.make(x, {{p + ".q_proj", q_width}, {p + ".k_proj", kv_width}, {p + ".v_proj", kv_width}},
                     m_.attention_bias);
    const ValueId q = turned(block, 'q', qkv[0], x);
    const ValueId k = turned(block, 'k', qkv[1], x);
    const ValueId v = linear_.apply(qkv[2], x);
    b_.piece("attention");
    const ValueId sinks = style_.attention_sinks ? b_.parameter(p + ".sinks", {m_.num_attention_heads},
                                                                Init::normal, m_.initializer_range)
                                                 : -1;
    const ValueId o = b_.attention(p + ".attention", q, k, v, shared.document_start, block.attention, sinks);
    b_.piece("output");
    return linear_.project(p + ".o_proj", o, m_.hidden_size, m_.attention_output_bias);
  }

  /// Returns x + residual_multiplier * y. y is the output of attention or of the feed-forward.
  ValueId residual(const std::string& name, ValueId x, ValueId y) {
    b_.piece("residual");
    if (m_.residual_multiplier != 1) y = b_.scale(name + "_multiplier", y, m_.residual_multiplier);
    return b_.add(name, x, y);
  }

  ValueId emit(const Block& block, ValueId x, const Shared& shared) {
    const ValueId a = attention(block, norm_if(block, style_.before_attention, x), shared);
    const ValueId x1 =
        residual(block.name + ".attention_residual", x, norm_if(block, style_.after_attention, a));
    const ValueId f =
        feed_forward_.emit(block.name + ".mlp", block.layer, norm_if(block, style_.before_mlp, x1));
    return residual(block.name + ".mlp_residual", x1, norm_if(block, style_.after_mlp, f));
  }

  ValueId head(ValueId x, ValueId embedding) {
    const bool loss = r_.objective == Objective::loss;
    if (!loss) x = b_.select_row("index", x, b_.input("index", DType::i32, {1}));
    ValueId h = norm("model.norm", x);
    b_.piece("head");
    if (r_.pairs.slots > 0 && is_reward_loss(r_.pairs.loss.loss_type)) return reward_loss(h);
    if (m_.logits_scaling != 1) h = b_.scale("logits_scaling", h, 1 / m_.logits_scaling);
    const ValueId weight = m_.tie_word_embeddings
                               ? embedding
                               : b_.parameter(config::head_weight, {m_.vocab_size, m_.hidden_size},
                                              Init::normal, m_.initializer_range);
    const double cap = m_.final_logit_softcapping;
    if (!loss) {
      const ValueId logits = b_.linear("lm_head", h, weight);
      return cap > 0 ? b_.soft_cap("logits_cap", logits, cap) : logits;
    }
    const ValueId targets = b_.input("targets", DType::i32, {r_.tokens});
    const ValueId weights = balance_.weights();
    if (r_.pairs.slots > 0)
      return pair_loss(
          b_.emit(HeadTokens{{cap}}, "lm_head", {h, weight, targets, weights}, {r_.tokens}, DType::f64),
          weights);
    if (r_.distillation.words > 0) return distillation_loss({h, weight, targets, weights});
    if (r_.likelihoods > 0) return told_likelihoods({h, weight, targets, weights}, cap);
    return b_.head_loss("lm_head", h, weight, targets, weights, {cap, r_.label_smoothing, r_.head_z_loss});
  }

  /// The loss of a reward model, whose head scales and caps nothing. The weights are 1 for the last tokens of
  /// answers, and 0 for the others.
  ValueId reward_loss(ValueId h) {
    const ValueId weight =
        b_.parameter(config::score_weight, {1, m_.hidden_size}, Init::normal, m_.initializer_range);
    b_.input("targets", DType::i32, {r_.tokens});  // every batch has them
    const ValueId weights = balance_.weights();
    return pair_loss(b_.emit(RewardTokens{}, "score", {h, weight, weights}, {r_.tokens}, DType::f64),
                     weights);
  }

  /// nll: of tokens, times their weights.
  ValueId pair_loss(ValueId nll, ValueId weights) {
    const ValueId sequences = b_.input("sequences", DType::i32, {r_.tokens});
    const ValueId reference = b_.input("reference", DType::f64, {r_.tokens});
    const ValueId sums = b_.emit(SequenceSums{}, "sequence_sums", {nll, weights, sequences, reference},
                                 {r_.pairs.slots, sequence_sums_width}, DType::f64);
    std::vector<ValueId> inputs{sums};
    if (r_.pairs.loss.loss_type == "kto") {
      const ValueId own = b_.emit(KlSums{}, "kl_sums", {sums}, {2}, DType::f64);
      inputs.push_back(b_.emit(ShareSums{}, "kl_sums.all", {own}, {2}, DType::f64));
    }
    const ValueId losses =
        b_.emit(PreferenceLoss{r_.pairs.loss}, "preference_loss", std::move(inputs), {2}, DType::f64);
    pairs_.report = b_.extra_output("preference_loss.report", {preference_sums}, DType::f64);
    pairs_.logps = b_.extra_output("preference_loss.logps", {r_.pairs.slots}, DType::f64);
    return losses;
  }

  /// head: the first inputs of DistillLoss. The model's logits are not capped.
  ValueId distillation_loss(std::vector<ValueId> head) {
    const Shape known{r_.tokens, r_.distillation.words};
    head.push_back(b_.input("teacher_words", DType::i32, known));
    head.push_back(b_.input("teacher_shares", DType::f32, known));
    DistillLoss record;
    record.most_words = m_.vocab_size;
    record.share = r_.distillation.share;
    const ValueId losses = b_.emit(record, "lm_head", std::move(head), {2}, DType::f64);
    teacher_.report = b_.extra_output("lm_head.report", {2}, DType::f64);
    return losses;
  }

  /// head: the inputs of HeadLikelihoods.
  ValueId told_likelihoods(std::vector<ValueId> head, double cap) {
    HeadLikelihoods record;
    record.soft_cap = cap;
    record.most_words = m_.vocab_size;
    const ValueId losses = b_.emit(record, "lm_head", std::move(head), {2}, DType::f64);
    const Shape told{r_.tokens, r_.likelihoods};
    teacher_.words = b_.extra_output("lm_head.words", told, DType::i32);
    teacher_.log_likelihoods = b_.extra_output("lm_head.log_likelihoods", told, DType::f32);
    return losses;
  }

  Builder b_;
  const config::Model& m_;
  const Request& r_;
  const BlockStyle& style_;
  Projections linear_;
  Balance balance_;
  FeedForward feed_forward_;
  PairValues pairs_;
  TeacherValues teacher_;
};

}  // namespace

Graph decoder(const config::Model& dims, const Request& request) {
  return Decoder(dims, request).run();
}

}  // namespace ztrain::model
