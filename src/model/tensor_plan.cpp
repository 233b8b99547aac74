#include "model/tensor_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/architectures.hpp"
#include "config/layers.hpp"

namespace ztrain::model {
namespace {

/// Which heads a rank has.
struct Heads {
  Rows queries, keys;
};

/// As evenly as whole heads of keys allow; a rank has all heads of queries that attend to its heads of keys,
/// or where ranks are more, some of those that attend to one. No rank has more than the first.
std::vector<Heads> heads_of_ranks(std::int64_t queries, std::int64_t keys, int ranks) {
  const std::int64_t group = queries / keys;
  std::vector<Heads> heads;
  for (std::int64_t r = 0; r < ranks; ++r) {
    if (ranks <= keys) {
      const Rows kv{ceil_div(r * keys, ranks), ceil_div((r + 1) * keys, ranks)};
      heads.push_back({{kv.begin * group, kv.end * group}, kv});
      continue;
    }
    const std::int64_t kv = ((r + 1) * keys - 1) / ranks;  // the head of keys of whose ranks this is one
    const std::int64_t first = kv * ranks / keys, last = (kv + 1) * ranks / keys;  // those ranks
    const std::int64_t begin = kv * group + ceil_div((r - first) * group, last - first),
                       end = kv * group + ceil_div((r + 1 - first) * group, last - first);
    heads.push_back({{begin, end}, {kv, kv + 1}});
  }
  return heads;
}

/// Parts that begin at these multiples of `item`; equal ones are not listed.
TensorSlice cut_at(int dim, std::vector<std::int64_t> begins, std::int64_t item) {
  TensorSlice slice{dim, static_cast<int>(begins.size()) - 1};
  for (std::int64_t& b : begins) b *= item;
  const std::int64_t first = begins[1];
  for (std::size_t i = 0; i < begins.size(); ++i)
    if (begins[i] != static_cast<std::int64_t>(i) * first) {
      slice.begins = std::move(begins);
      break;
    }
  return slice;
}

/// As even as whole items allow; no part is larger than the first. Items are what products on GPUs ask of
/// their operands, where the size is a multiple of it.
TensorSlice even(int dim, std::int64_t size, int ranks) {
  constexpr std::int64_t aligned = 16;
  const std::int64_t item = size % aligned == 0 && size / aligned >= ranks ? aligned : 1;
  std::vector<std::int64_t> begins;
  for (std::int64_t r = 0; r <= ranks; ++r) begins.push_back(ceil_div(r * (size / item), ranks));
  return cut_at(dim, std::move(begins), item);
}

/// Of the heads that `which` names.
TensorSlice by_heads(int dim, const std::vector<Heads>& heads, Rows Heads::*which, std::int64_t head_dim) {
  std::vector<std::int64_t> begins{0};
  for (const Heads& h : heads) begins.push_back((h.*which).end);
  return cut_at(dim, std::move(begins), head_dim);
}

/// Adds the cuts of a feed-forward whose layers' names match the prefix: columns, and then rows of the layer
/// behind them. Adapters' factors beside its layers come first, since the patterns of layers match them too.
void add_feed_forward(TensorPlan& plan, const config::BlockStyle& style, std::string_view prefix,
                      std::int64_t width, int ranks) {
  const TensorSlice columns = even(0, width, ranks), rows = even(1, width, ranks);
  const auto of = [&](std::string_view layer, const char* what) {
    return fmt::format("{}{}.{}", prefix, layer, what);
  };
  plan.parameters.push_back({of(style.down, "lora_A.weight"), rows});
  plan.parameters.push_back({of(style.down, "lora_B.weight"), {}});
  for (const std::string_view layer : {style.gate, style.up}) {
    if (layer.empty()) continue;
    plan.parameters.push_back({of(layer, "lora_A.weight"), {}});
    plan.parameters.push_back({of(layer, "*"), columns});
  }
  plan.parameters.push_back({of(style.down, "weight"), rows});
}

/// Adds the cuts of experts [E, n, k]: the feed-forward of each is cut as a dense one is, and so are
/// adapters' factors. The factor that gate and up share matches none of these patterns, and is whole.
void add_experts(TensorPlan& plan, const config::Model& m, const config::BlockStyle& style, int ranks) {
  const TensorSlice columns = even(1, m.moe_intermediate_size, ranks),
                    rows = even(2, m.moe_intermediate_size, ranks);
  for (const std::string_view layer : {style.gate, style.up})
    plan.parameters.push_back({fmt::format("*.experts.{}.*", layer), columns});
  for (const char* factor : {"lora_A.weight", "weight"})
    plan.parameters.push_back({fmt::format("*.experts.{}.{}", style.down, factor), rows});
  if (const std::int64_t width = config::shared_expert_width(m); width > 0)
    add_feed_forward(plan, style, fmt::format("*.{}.", style.shared_expert), width, ranks);
}

/// The projection of keys or values: cut, or whole where neighbours need the same rows.
ParameterCut keys_cut(std::string pattern, const std::vector<Heads>& heads, std::int64_t keys,
                      std::int64_t head_dim) {
  if (std::ssize(heads) <= keys) return {std::move(pattern), by_heads(0, heads, &Heads::keys, head_dim)};
  ParameterCut cut{std::move(pattern), {}};
  for (const Heads& h : heads) cut.taken.push_back({h.keys.begin * head_dim, h.keys.end * head_dim});
  return cut;
}

}  // namespace

const ParameterCut* TensorPlan::find(const std::string& parameter) const {
  for (const ParameterCut& cut : parameters)
    if (glob_match(cut.pattern, parameter)) return &cut;
  return nullptr;
}

std::int64_t most_tensor_ranks(const config::Model& m) {
  const std::int64_t sparse = config::layers_with_experts(m), shared = config::shared_expert_width(m);
  std::int64_t most = std::min(m.num_attention_heads, m.vocab_size);
  if (sparse < m.num_hidden_layers || sparse == 0) most = std::min(most, m.intermediate_size);
  if (sparse > 0) most = std::min(most, m.moe_intermediate_size);
  return sparse > 0 && shared > 0 ? std::min(most, shared) : most;
}

TensorPlan decoder_tensor_plan(const config::Model& m, int ranks) {
  ASSERT(ranks <= most_tensor_ranks(m), "a model for at most {} ranks of tensor is cut over {}",
         most_tensor_ranks(m), ranks);
  const auto heads = heads_of_ranks(m.num_attention_heads, m.num_key_value_heads, ranks);
  const std::int64_t hd = m.head_dim, keys = m.num_key_value_heads,
                     values = config::is_latent(m) ? m.v_head_dim : hd;
  const TensorSlice words = even(0, m.vocab_size, ranks);
  const config::BlockStyle& style = config::find_architecture(m.family).style;
  TensorPlan plan;
  if (m.num_experts > 0) add_experts(plan, m, style, ranks);
  add_feed_forward(plan, style, "*.", m.intermediate_size, ranks);
  // What an adapter's factor lies beside decides which of the two is cut; lora_A and lora_B come first, since
  // the patterns of layers match them too.
  const std::vector<ParameterCut> others{
      {"*.o_proj.lora_A.weight", by_heads(1, heads, &Heads::queries, values)},
      {"*.lora_A.weight", {}},
      {"*.o_proj.lora_B.weight", {}},
      {"*.q_proj.*", by_heads(0, heads, &Heads::queries, hd)},
      keys_cut("*.k_proj.*", heads, keys, hd),
      keys_cut("*.v_proj.*", heads, keys, hd),
      {"*.o_proj.weight", by_heads(1, heads, &Heads::queries, values)},
      {config::embedding_weight, words},
      {config::head_weight, words},
  };
  plan.parameters.insert(plan.parameters.end(), others.begin(), others.end());
  if (style.attention_sinks)
    plan.parameters.push_back({"*.self_attn.sinks", by_heads(0, heads, &Heads::queries, 1)});
  if (config::is_latent(m)) {
    plan.parameters.push_back({"*.q_b_proj.*", by_heads(0, heads, &Heads::queries, hd)});
    plan.parameters.push_back(
        {"*.kv_b_proj.*", by_heads(0, heads, &Heads::queries, m.qk_nope_head_dim + values)});
  }
  if (style.learned_positions)
    plan.parameters.push_back({config::positions_weight, even(0, m.max_position_embeddings, ranks)});
  if (style.wide_qk_norm) {
    plan.parameters.push_back({"*.q_norm.weight", by_heads(0, heads, &Heads::queries, hd)});
    plan.parameters.push_back(keys_cut("*.k_norm.weight", heads, keys, hd));
  }
  return plan;
}

TensorPlan inference_plan(TensorPlan plan, const config::Model& dims) {
  plan.parameters.insert(plan.parameters.begin(),
                         {dims.tie_word_embeddings ? config::embedding_weight : config::head_weight, {}});
  plan.sequence_parallel = false;
  return plan;
}

}  // namespace ztrain::model
