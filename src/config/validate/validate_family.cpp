#include "base/error.hpp"
#include "config/hf/architectures.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

/// A key that nobody gave takes the value that goes with the family.
void settle(Deck& deck, const char* key, bool& flag, bool value) {
  if (flag == value || source_of(deck, key) != "default") return;
  flag = value;
  set_source(deck, key, "model.family");
}

}  // namespace

void check_family(Deck& deck) {
  Model& m = deck.model;
  const Architecture& a = find_architecture(m.family);
  if (a.attention_bias != Has::by_config)
    settle(deck, "model.attention_bias", m.attention_bias, a.attention_bias == Has::always);
  settle(deck, "model.attention_output_bias", m.attention_output_bias, a.output_bias && m.attention_bias);
  settle(deck, "model.qk_norm", m.qk_norm, a.qk_norm);
  if (const auto wrong = misfit(m))
    fail("{}: {} = {} does not go with model.family = \"{}\"; legal: {}",
         blame(deck, {wrong->key, "model.family", "model.attention_bias"}), wrong->key, wrong->value,
         m.family, wrong->legal);
  REQUIRE(
      m.full_attention_layers == 0 || m.sliding_window > 0,
      "{}: model.full_attention_layers = {} needs a model.sliding_window, and that is 0; nearest legal: 0",
      source_of(deck, "model.full_attention_layers"), m.full_attention_layers);
  REQUIRE(
      m.full_attention_layers < m.num_hidden_layers,
      "{}: model.full_attention_layers = {} leaves no layer of {} to model.sliding_window; nearest legal: {}",
      blame(deck, {"model.full_attention_layers", "model.num_hidden_layers"}), m.full_attention_layers,
      m.num_hidden_layers, m.num_hidden_layers - 1);
}

}  // namespace ztrain::config
