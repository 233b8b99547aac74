#include "config/architectures.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

/// Sets a key that was not given to the value of the family.
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
    refuse(deck, "model.family model.*",
           {{"at", blame(deck, {wrong->key, "model.family", "model.attention_bias"})},
            {"key", wrong->key},
            {"value", wrong->value},
            {"legal", wrong->legal}});
}

}  // namespace ztrain::config
