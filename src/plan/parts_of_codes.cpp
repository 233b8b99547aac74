#include "plan/parts_of_codes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "config/adapters.hpp"
#include "config/architectures.hpp"
#include "config/layers.hpp"
#include "config/validate/refusals.hpp"
#include "layout/layout.hpp"
#include "model/family.hpp"
#include "model/fp8.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {
namespace {

/// Whether products of codes can be cut into so many parts: of sizes that such products take. Rows that ranks
/// share have one scale, which is that of all.
bool codes_divide(const config::Deck& deck, std::int64_t ranks) {
  const config::Model& m = deck.model;
  const model::TensorPlan plan = model::find_family(m.family).tensor_plan(m, static_cast<int>(ranks));
  const auto coded = [](std::int64_t size) { return size % model::fp8_multiple == 0; };
  const auto divides = [&](const std::string& layer, std::int64_t rows) {
    const model::ParameterCut* cut = plan.find(fmt::format("model.layers.0.{}.weight", layer));
    if (rows == 0 || !coded(rows) || !cut) return true;
    for (const model::Rows& taken : cut->taken)
      if (deck.precision.fp8 == "rowwise" || !coded(taken.end - taken.begin)) return false;
    for (int r = 0; !cut->slice.whole() && r < static_cast<int>(ranks); ++r)
      if (!coded(cut->slice.begin(rows, r + 1) - cut->slice.begin(rows, r))) return false;
    return true;
  };
  const config::BlockStyle& style = config::find_architecture(m.family).style;
  const std::int64_t values = config::is_latent(m) ? m.v_head_dim : m.head_dim,
                     kv = m.num_attention_heads * (m.qk_nope_head_dim + m.v_head_dim);
  return divides("self_attn.q_proj", m.num_attention_heads * m.head_dim) &&
         divides("self_attn.q_b_proj", m.num_attention_heads * m.head_dim) &&
         divides("self_attn.kv_b_proj", kv) && divides("self_attn.o_proj", m.num_attention_heads * values) &&
         divides("self_attn.k_proj", m.num_key_value_heads * m.head_dim) &&
         divides(fmt::format("mlp.{}.{}", style.shared_expert, style.up), config::shared_expert_width(m)) &&
         divides(fmt::format("mlp.{}", style.up), m.intermediate_size);
}

void require_parts_of_products(const config::Deck& deck) {
  std::vector<std::int64_t> legal;
  for (std::int64_t ranks = 1; ranks <= model::most_tensor_ranks(deck.model); ++ranks)
    if (codes_divide(deck, ranks)) legal.push_back(ranks);
  const bool rowwise = deck.precision.fp8 == "rowwise" && deck.mesh.tensor > deck.model.num_key_value_heads;
  const auto distance = [&](std::int64_t ranks) { return std::abs(ranks - deck.mesh.tensor); };
  if (std::ranges::count(legal, deck.mesh.tensor) > 0) return;
  config::refuse(deck, "mesh.tensor precision.fp8",
                 {{"multiple", model::fp8_multiple},
                  {"keys", rowwise ? ", and no more ranks than heads of keys" : ""},
                  {"nearest", std::ranges::min(legal, {}, distance)},
                  {"legal", fmt::join(legal, ", ")}});
}

/// Whether weights in blocks can be cut into so many parts: no block is in two of them.
bool blocks_divide(const config::Deck& deck, const model::Graph& graph, std::int64_t ranks) {
  const model::TensorPlan plan =
      model::find_family(deck.model.family).tensor_plan(deck.model, static_cast<int>(ranks));
  return std::ranges::all_of(graph.parameters, [&](const model::Parameter& p) {
    const model::ParameterCut* cut = p.form.in_blocks() ? plan.find(p.name) : nullptr;
    if (cut == nullptr || cut->slice.whole()) return true;
    for (int r = 0; r < static_cast<int>(ranks); ++r) {
      const SliceIndex index = slice_index(p.shape, cut->slice, r);
      if (index.run % scale_block != 0 || index.offset % scale_block != 0) return false;
    }
    return true;
  });
}

void require_whole_blocks(const config::Deck& deck) {
  const model::Graph graph = training_graph(deck);
  std::vector<std::int64_t> legal;
  for (std::int64_t ranks = 1; ranks <= model::most_tensor_ranks(deck.model); ++ranks)
    if (ranks == 1 || blocks_divide(deck, graph, ranks)) legal.push_back(ranks);
  if (std::ranges::count(legal, deck.mesh.tensor) > 0) return;
  const auto distance = [&](std::int64_t ranks) { return std::abs(ranks - deck.mesh.tensor); };
  config::refuse(deck, "mesh.tensor lora.quantization",
                 {{"block", scale_block},
                  {"nearest", std::ranges::min(legal, {}, distance)},
                  {"legal", fmt::join(legal, ", ")}});
}

}  // namespace

void require_parts_of_codes(const config::Deck& deck) {
  if (deck.precision.fp8 != "none") require_parts_of_products(deck);
  if (config::weight_form(deck.lora).in_blocks()) require_whole_blocks(deck);
}

}  // namespace ztrain::plan
