#include "config/fields/model_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "config/fields/value.hpp"
#include "config/layers.hpp"

namespace ztrain::config {
namespace {

/// Keys of [model] that do not say what the model is.
constexpr std::array<std::string_view, 8> not_shape{
    "model.preset",   "model.from",         "model.base",      "model.add_tokens",
    "model.new_rows", "model.trust_config", "model.trainable", "model.frozen"};

/// Returns the field's value after `text` is assigned to it, as render() writes it.
std::string canonical(const Field& field, std::string_view text) {
  Deck deck;
  assign(field, text, deck, "model.family");
  return render(field, deck);
}

/// Returns the key of the deck that has the row's name in config.json too, and stands before it; null: none.
const Field* same_in_config(const Architecture& a, const ModelKey& row) {
  if (!row.in_file()) return nullptr;
  const ModelKey* first = find_hf(a, row.hf);
  return first == &row ? nullptr : find_field(first->key);
}

/// Returns the only value that goes with the architecture and the deck's other keys; "": there are more.
std::string only_value(const Architecture& a, const Field& field, const Deck& deck) {
  const ModelKey* row = find_key(a, field.key);
  if (row == nullptr) return canonical(field, field.standard);
  if (row->role == KeyRole::fixed) {
    const double value = derived(field.key, deck.model);
    return value != 0 ? canonical(field, fmt::format("{}", value)) : canonical(field, row->standard);
  }
  const Field* same = same_in_config(a, *row);
  return same == nullptr ? "" : render(*same, deck);
}

bool fits(const Architecture& a, const Field& field, const Deck& deck) {
  const std::string only = only_value(a, field, deck), value = render(field, deck);
  return only.empty() || value == only || (value == "0" && derived(field.key, deck.model) != 0);
}

/// Returns text such as "false, or model.family = qwen3".
std::string legal(const Architecture& a, const Field& field, const Deck& deck) {
  const ModelKey* row = find_key(a, field.key);
  const Field* same = row == nullptr ? nullptr : same_in_config(a, *row);
  std::vector<std::string_view> others;
  for (const Architecture& other : architectures())
    if (other.family != a.family && fits(other, field, deck) && (same == nullptr || fits(other, *same, deck)))
      others.push_back(other.family);
  const std::string only = only_value(a, field, deck);
  return others.empty() ? only : fmt::format("{}, or model.family = {}", only, fmt::join(others, " or "));
}

}  // namespace

bool shapes_model(const Field& field) {
  return field.section() == "model" && std::ranges::find(not_shape, field.key) == not_shape.end();
}

const ModelKey* find_key(const Architecture& a, std::string_view key) {
  const auto row = std::ranges::find_if(a.keys, [&](const ModelKey& k) { return key == k.key; });
  return row == a.keys.end() ? nullptr : &*row;
}

const ModelKey* find_hf(const Architecture& a, std::string_view hf) {
  const auto row = std::ranges::find_if(a.keys, [&](const ModelKey& k) { return hf == k.hf; });
  return row == a.keys.end() ? nullptr : &*row;
}

double derived(std::string_view key, const Model& m) {
  const auto hidden = static_cast<double>(m.hidden_size), heads = static_cast<double>(m.num_attention_heads);
  const auto derived_dim = static_cast<double>(derived_head_dim(m));
  const double head_dim = m.head_dim > 0 ? static_cast<double>(m.head_dim) : derived_dim;
  if (key == "model.num_key_value_heads") return heads;
  if (key == "model.head_dim") return derived_dim;
  if (key == "model.intermediate_size") return 4 * hidden;
  if (key == "model.query_pre_attn_scalar") return head_dim;
  if (key == "model.attention_multiplier") return head_dim > 0 ? 1 / std::sqrt(head_dim) : 0;
  if (key == "model.rope_local_base_freq") return m.rope_theta;
  return 0;
}

std::string family_value(const Architecture& a, const Field& field, const Deck& deck) {
  const ModelKey* row = find_key(a, field.key);
  if (row == nullptr) return "";
  if (const Field* same = same_in_config(a, *row)) return render(*same, deck);
  if (field.key == "model.layer_types" && deck.model.sliding_window == 0) return "";
  if (row->role == KeyRole::fixed) return derived(field.key, deck.model) != 0 ? "" : row->standard;
  if (row->role != KeyRole::own) return "";
  const double value = std::string_view(row->standard) == "0" ? derived(field.key, deck.model) : 0;
  return value != 0 ? fmt::format("{}", value) : row->standard;
}

std::optional<Misfit> misfit(const Model& model) {
  Deck deck;
  deck.model = model;
  const Architecture& a = find_architecture(model.family);
  for (const Field& field : fields())
    if (shapes_model(field) && field.key != "model.family" && !fits(a, field, deck))
      return Misfit{field.key, render(field, deck), legal(a, field, deck)};
  return std::nullopt;
}

}  // namespace ztrain::config
