#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/adapters.hpp"
#include "config/architectures.hpp"
#include "config/fields/model_keys.hpp"
#include "config/fields/presets.hpp"
#include "config/fields/value.hpp"
#include "config/layers.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

/// Gives keys that were not given the values of the family.
void settle(Deck& deck, const Architecture& a) {
  for (const Field& field : fields()) {
    if (field.section() != "model" || source_of(deck, field.key) != "default") continue;
    const std::string value = family_value(a, field, deck), before = render(field, deck);
    if (value.empty()) continue;
    assign(field, value, deck, "model.family");
    if (render(field, deck) != before) set_source(deck, field.key, "model.family");
  }
  const auto layers = static_cast<std::size_t>(deck.model.num_hidden_layers);
  const auto cut = [&](const char* key, auto& list) {
    if (source_of(deck, key) == "model.family" && list.size() > layers) list.resize(layers);
  };
  cut("model.layer_types", deck.model.layer_types);
  cut("model.no_rope_layers", deck.model.no_rope_layers);
}

/// Names all linear layers of the family's blocks, if no others are given or PEFT's word for them is. Experts
/// are none.
void settle_targets(Deck& deck, const BlockStyle& style) {
  const std::vector<std::string> before = deck.lora.targets;
  if (source_of(deck, "lora.targets") != "default" && before != std::vector<std::string>{all_linear}) return;
  const Model& m = deck.model;
  if (!is_latent(m))
    deck.lora.targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  else if (m.q_lora_rank > 0)
    deck.lora.targets = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
  else
    deck.lora.targets = {"q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
  const bool all_tokens = layers_with_experts(m) < m.num_hidden_layers || shared_expert_width(m) > 0;
  if (!all_tokens) return set_source(deck, "lora.targets", "model.family");
  for (const std::string_view layer : {style.gate, style.up, style.down})
    if (!layer.empty()) deck.lora.targets.emplace_back(layer);
  if (deck.lora.targets != before) set_source(deck, "lora.targets", "model.family");
}

void require_no_empty(const Deck& deck, const char* key, const std::vector<std::string>& patterns) {
  REQUIRE(std::find(patterns.begin(), patterns.end(), "") == patterns.end(),
          "{}: {} holds an empty pattern, which matches no name; leave it out", source_of(deck, key), key);
}

/// Refuses a file that is given twice: its tokens would count once, or twice with data.weights.
void require_each_once(const Deck& deck, const char* key, std::vector<std::string> entries) {
  std::ranges::sort(entries);
  const auto again = std::ranges::adjacent_find(entries);
  REQUIRE(again == entries.end(),
          "{}: {} names '{}' twice; once is enough (data.weights says how often files are drawn from)",
          source_of(deck, key), key, *again);
}

}  // namespace

void check_family(Deck& deck) {
  const Architecture& a = find_architecture(deck.model.family);
  settle(deck, a);
  settle_targets(deck, a.style);
  if (const auto wrong = misfit(deck.model))
    refuse(deck, "model.family model.*",
           {{"at", blame(deck, {wrong->key, "model.family", "model.attention_bias"})},
            {"key", wrong->key},
            {"value", wrong->value},
            {"legal", wrong->legal}});
}

void check_patterns(const Deck& deck) {
  require_no_empty(deck, "sharding.unit_patterns", deck.sharding.unit_patterns);
  require_no_empty(deck, "optimizer.no_decay", deck.optimizer.no_decay);
}

void check_data(const Deck& deck) {
  const Data& d = deck.data;
  require_each_once(deck, "data.train", d.train);
  require_each_once(deck, "data.validation", d.validation);
  REQUIRE(!d.train.empty(), "{}: data.train is empty; name files or patterns", source_of(deck, "data.train"));
}

void check_profile(const Deck& deck) {
  const std::vector<double>& steps = deck.profile.steps;
  const bool whole = std::ranges::all_of(steps, [](double step) { return step == std::floor(step); });
  REQUIRE(
      steps.empty() || (steps.size() == 2 && whole && steps[0] <= steps[1]),
      "{}: profile.steps = [{}]: must be [] or two whole numbers, the first and the last step, as in [5, 6]",
      source_of(deck, "profile.steps"), fmt::join(steps, ", "));
}

void check_cluster(Deck& deck) {
  Cluster& c = deck.cluster;
  if (source_of(deck, "cluster.peak_tflops").rfind("preset", 0) == 0 &&
      size_of(deck.precision.parameters) != 2) {
    c.peak_tflops = cluster_peak(c.preset, deck.precision.parameters);
    if (c.peak_tflops == 0)
      set_source(deck, "cluster.peak_tflops",
                 fmt::format("preset {} knows no peak in {}", c.preset, name_of(deck.precision.parameters)));
  }
}

}  // namespace ztrain::config
