#include "model/latent_attention.hpp"

#include <utility>
#include <vector>

#include "kernels/heads/record.hpp"
#include "model/projections.hpp"

namespace ztrain::model {
namespace {

class LatentAttention {
 public:
  LatentAttention(Builder& builder, const config::Model& dims, std::string name)
      : b_(builder), m_(dims), linear_(builder, dims.initializer_range), name_(std::move(name)) {}

  ValueId run(const LatentInputs& in, const Attention& attention) {
    b_.piece("qkv");
    const ValueId q = queries(in);
    const auto [k, v] = keys_and_values(in);
    b_.piece("attention");
    const ValueId o = b_.attention(of("attention"), q, k, v, in.document_start, attention);
    const HeadParts cut{heads(), {{0, 0, 0, 0, m_.v_head_dim}}};
    const ValueId values = b_.head_parts(of("attended"), cut, {o}, {{"", heads() * m_.v_head_dim}})[0];
    b_.piece("output");
    return project("o_proj", values, m_.hidden_size, m_.attention_bias);
  }

 private:
  std::int64_t heads() const { return m_.num_attention_heads; }
  std::string of(const std::string& part) const { return name_ + "." + part; }

  ValueId project(const std::string& layer, ValueId x, std::int64_t out, bool bias) {
    return linear_.project(of(layer), x, out, bias);
  }

  ValueId norm(const std::string& layer, ValueId x) {
    constexpr double eps = 1e-6;  // rms_norm_eps is that of the other norms.
    return b_.rms_norm(of(layer), x, b_.parameter(of(layer + ".weight"), {b_.shape(x)[1]}, Init::ones),
                       {.eps = eps});
  }

  ValueId queries(const LatentInputs& in) {
    const std::int64_t width = heads() * m_.head_dim;
    ValueId q;
    if (m_.q_lora_rank > 0) {
      const ValueId latent = project("q_a_proj", in.x, m_.q_lora_rank, m_.attention_bias);
      q = project("q_b_proj", norm("q_a_layernorm", latent), width, false);
    } else {
      q = project("q_proj", in.x, width, false);
    }
    return b_.rope(of("q_rope"), q, in.table,
                   {.head_dim = m_.head_dim, .from = m_.qk_nope_head_dim, .interleaved = true});
  }

  std::pair<ValueId, ValueId> keys_and_values(const LatentInputs& in) {
    const std::int64_t rank = m_.kv_lora_rank, turned = m_.qk_rope_head_dim, still = m_.qk_nope_head_dim,
                       v = m_.v_head_dim;
    const ValueId both = project("kv_a_proj_with_mqa", in.x, rank + turned, m_.attention_bias);
    const HeadParts split{0, {{0, 0, 0, 0, rank}, {0, rank, 1, 0, turned}}};
    const auto parts =
        b_.head_parts(of("kv_a_proj_with_mqa"), split, {both}, {{".latent", rank}, {".k_pe", turned}});
    const ValueId kv = project("kv_b_proj", norm("kv_a_layernorm", parts[0]), heads() * (still + v), false);
    const ValueId k_pe = b_.rope(of("k_rope"), parts[1], in.table, {.interleaved = true});
    const HeadParts joined{
        heads(), {{0, 0, 0, 0, still}, {1, 0, 0, still, turned}, {0, still, 1, 0, v}}, true};
    const std::int64_t width = heads() * m_.head_dim;
    const auto made =
        b_.head_parts(of("kv_b_proj"), joined, {kv, k_pe}, {{".keys", width}, {".values", width}});
    return {made[0], made[1]};
  }

  Builder& b_;
  const config::Model& m_;
  Projections linear_;
  std::string name_;
};

}  // namespace

ValueId latent_attention(Builder& builder, const config::Model& dims, const std::string& name,
                         const LatentInputs& inputs, const Attention& attention) {
  return LatentAttention(builder, dims, name).run(inputs, attention);
}

}  // namespace ztrain::model
