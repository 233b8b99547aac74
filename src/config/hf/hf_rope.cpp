#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "config/fields/model_keys.hpp"
#include "config/fields/value.hpp"
#include "config/hf/hf_keys.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;

constexpr const char *older_rope = "rope_scaling", *newer_rope = "rope_parameters",
                     *local_key = "model.rope_local_base_freq",
                     *original_key = "original_max_position_embeddings";

/// A member of rope_scaling.
struct ScalingKey {
  const char *key, *name;
  std::string_view scalings;  ///< scalings that have the member
  std::string_view standard =
      "";  ///< value of a missing member; "": it follows from others, or must be there
};
constexpr std::array scaling_keys{
    ScalingKey{"model.rope_factor", "factor", "linear dynamic yarn longrope llama3"},
    ScalingKey{"model.rope_low_freq_factor", "low_freq_factor", "llama3"},
    ScalingKey{"model.rope_high_freq_factor", "high_freq_factor", "llama3"},
    ScalingKey{"model.rope_original_max_position", original_key, "yarn longrope llama3"},
    ScalingKey{"model.rope_attention_factor", "attention_factor", "yarn longrope", "0"},
    ScalingKey{"model.rope_beta_fast", "beta_fast", "yarn", "32"},
    ScalingKey{"model.rope_beta_slow", "beta_slow", "yarn", "1"},
    ScalingKey{"model.rope_mscale", "mscale", "yarn", "0"},
    ScalingKey{"model.rope_mscale_all_dim", "mscale_all_dim", "yarn", "0"},
    ScalingKey{"model.rope_truncate", "truncate", "yarn", "true"},
    ScalingKey{"model.rope_short_factor", "short_factor", "longrope"},
    ScalingKey{"model.rope_long_factor", "long_factor", "longrope"},
};

bool belongs(const ScalingKey& row, std::string_view scaling) {
  return row.scalings.find(scaling) != row.scalings.npos;
}

/// Requires that each member is known: an unknown one may change numbers.
void require_known(const Members& rope, const char* key, const json& members) {
  constexpr std::array<std::string_view, 4> others{"rope_theta", "rope_type", "type",
                                                   "partial_rotary_factor"};
  for (const auto& [name, value] : members.items()) {
    REQUIRE(!value.is_object(),
            "{}: {} is an object: rotary embeddings that differ by layer are for gemma3 and olmo3",
            rope.where(), printable(name, most_quoted));
    const bool known = std::ranges::find(others, name) != others.end() ||
                       std::ranges::find(scaling_keys, name, &ScalingKey::name) != scaling_keys.end();
    REQUIRE(known || value.is_null(), "{}: {}: not supported in {}", rope.where(),
            printable(name, most_quoted), key);
  }
}

/// Returns the scaling by ztrain's name.
std::string scaling_of(const Members& rope, const char* key, const Architecture& a) {
  std::string type = rope.string("rope_type", rope.string("type", "default").c_str());
  // Its first names. Phi 3's class has no other scaling.
  if (type == "su" || (type == "yarn" && find_hf(a, original_key) != nullptr)) type = "longrope";
  if (type == "default") return "none";
  const auto& choices = find_field("model.rope_scaling")->legal.choices;
  REQUIRE(type != "none" && std::ranges::find(choices, type) != choices.end(),
          "{}: type \"{}\": not supported in {}; ztrain scales as linear, dynamic, yarn, longrope or llama3, "
          "or not at all (default)",
          rope.where(), printable(type, most_quoted), key);
  return type;
}

/// Returns the length of the first training, which may stand in rope_scaling or beside it; 0: not given.
std::int64_t original_of(const Members& rope, const Members& c, const Architecture& a, const Model& m) {
  if (c.has(original_key) && rope.has(original_key))
    REQUIRE(c.at(original_key) == rope.at(original_key), "{}: {} contradicts that of {}", c.where(),
            original_key, rope.where());
  if (rope.has(original_key)) return rope.integer(original_key);
  if (c.has(original_key)) return c.integer(original_key);
  return find_hf(a, original_key) != nullptr ? m.rope_original_max_position : m.max_position_embeddings;
}

/// Returns the value of a member that is not there.
std::string missing(const ScalingKey& row, const Members& rope, std::int64_t first, const Model& m) {
  if (row.name == std::string_view(original_key) && first > 0) return fmt::to_string(first);
  const bool ratio = m.rope_scaling == "longrope" || (m.rope_scaling == "yarn" && rope.contains("factor"));
  if (row.name == std::string_view("factor") && ratio && first > 0 && m.max_position_embeddings > 0)
    return fmt::format(
        "{}", std::max(1.0, static_cast<double>(m.max_position_embeddings) / static_cast<double>(first)));
  REQUIRE(!row.standard.empty(), "{}: {} is missing", rope.where(), row.name);
  return std::string(row.standard);
}

/// Reads the object of one kind of layers.
void read_object(const Members& rope, const json& members, const char* key, const Members& c,
                 const Architecture& a, Deck& deck) {
  Model& m = deck.model;
  require_known(rope, key, members);
  m.rope_theta = rope.number("rope_theta", m.rope_theta);
  const double part = rope.number("partial_rotary_factor", m.partial_rotary_factor);
  REQUIRE(part == 1 || find_key(a, "model.partial_rotary_factor") != nullptr,
          "{}: partial_rotary_factor: not supported; all elements of {} are turned", rope.where(), a.family);
  m.partial_rotary_factor = part;
  m.rope_scaling = scaling_of(rope, key, a);
  const std::int64_t first = original_of(rope, c, a, m);
  for (const ScalingKey& row : scaling_keys) {
    if (!belongs(row, m.rope_scaling)) continue;
    const Field& field = *find_field(row.key);
    assign(field, rope.has(row.name) ? toml_of(rope, row.name, field) : missing(row, rope, first, m), deck,
           rope.where());
  }
}

/// Returns everything that rotary embeddings depend on, to compare.
std::string text_of(const Deck& deck) {
  std::string text;
  for (const Field& field : fields())
    if (field.key.starts_with("model.rope_") || field.key == "model.partial_rotary_factor")
      text += is_of_other_scaling(field.key, deck) ? "" : render(field, deck) + " ";
  return text;
}

/// Gives layers with a window the same base if config.json has no other.
void give_windows_theta(const Architecture& a, Model& m) {
  const ModelKey* row = find_key(a, local_key);
  if (row != nullptr && !row->in_file()) m.rope_local_base_freq = m.rope_theta;
}

/// Reads the object under this key into a copy of the deck.
Deck with_object(const Members& rope, const json& members, const char* key, const Members& c,
                 const Architecture& a, Deck deck) {
  const bool by_layer = find_key(a, local_key) != nullptr &&
                        (members.contains(full_attention) || members.contains(sliding_attention));
  if (!by_layer) {
    read_object(rope, members, key, c, a, deck);
    give_windows_theta(a, deck.model);
    return deck;
  }
  Deck window = deck;
  if (deck.model.rope_local_base_freq > 0) window.model.rope_theta = deck.model.rope_local_base_freq;
  if (rope.has(full_attention))
    read_object(rope.object(full_attention), members.at(full_attention), key, c, a, deck);
  if (rope.has(sliding_attention))
    read_object(rope.object(sliding_attention), members.at(sliding_attention), key, c, a, window);
  const double theta = window.model.rope_theta;
  window.model.rope_local_base_freq = deck.model.rope_local_base_freq;
  const bool alike = text_of(window) == text_of(deck);
  REQUIRE(window.model.rope_scaling == "none" || alike,
          "{}: {} has a scaling of its own: not supported; ztrain scales the layers without a window alone, "
          "or all alike",
          rope.where(), sliding_attention);
  deck.model.rope_local_base_freq = window.model.rope_scaling == "none" ? theta : 0;
  return deck;
}

/// Returns an object without rope_theta; null if wavelengths are not stretched.
json scaling_json(const Architecture& a, const Deck& deck) {
  const Model& m = deck.model;
  if (m.rope_scaling == "none") return nullptr;
  // Such a class (Phi 3) derives the factor from lengths beside the object, and older ones refuse more
  // members.
  const bool beside = find_hf(a, original_key) != nullptr;
  REQUIRE(!beside || m.rope_scaling == "longrope",
          "model.rope_scaling = \"{}\": such a model is no {}, which has longrope alone", m.rope_scaling,
          a.hf_class);
  json object{{beside ? "type" : "rope_type", m.rope_scaling}};
  for (const ScalingKey& row : scaling_keys) {
    const std::string_view name = row.name;
    const Field& field = *find_field(row.key);
    const bool follows =
        beside && (name == original_key || (name == "factor" && m.rope_scaling == "longrope"));
    if (belongs(row, m.rope_scaling) && !follows && render(field, deck) != row.standard)
      object[row.name] = json_of(field, deck);
  }
  return object;
}

}  // namespace

bool is_of_other_scaling(const std::string& key, const Deck& deck) {
  const auto row = std::ranges::find_if(scaling_keys, [&](const ScalingKey& k) { return key == k.key; });
  return row != scaling_keys.end() && !belongs(*row, deck.model.rope_scaling);
}

void read_rope(const Members& c, const Architecture& a, Deck& deck) {
  if (a.style.learned_positions) return;
  const ModelKey* parameters = find_hf(a, newer_rope);
  const std::string_view standard = parameters == nullptr ? "" : parameters->standard;
  const auto after = [&](const char* key) { return with_object(c.object(key), c.at(key), key, c, a, deck); };
  Deck read = deck;
  give_windows_theta(a, read.model);
  if (c.has(older_rope)) read = after(older_rope);
  if (c.has(newer_rope)) {
    const Deck other = after(newer_rope);
    REQUIRE(!c.has(older_rope) || text_of(other) == text_of(read),
            "{}: rope_scaling and rope_parameters contradict each other", c.where());
    read = other;
  } else if (!c.has(older_rope) && !standard.empty()) {
    const json members = parse_json(standard);
    read = with_object({c.where(), members}, members, newer_rope, c, a, deck);
  }
  deck = std::move(read);
}

void write_rope(const Architecture& a, const Deck& deck, json& config) {
  if (a.style.learned_positions) return;
  const Model& m = deck.model;
  config[older_rope] = scaling_json(a, deck);
  if (find_hf(a, newer_rope) == nullptr) return;
  json all = config[older_rope].is_null() ? json{{"rope_type", "default"}} : config[older_rope];
  all["rope_theta"] = m.rope_theta;
  if (find_key(a, local_key) == nullptr) {
    config[newer_rope] = all;
    return;
  }
  const json windows{{"rope_type", "default"}, {"rope_theta", m.rope_local_base_freq}};
  config[newer_rope] = json::object();
  config[newer_rope][full_attention] = all;
  config[newer_rope][sliding_attention] = m.rope_local_base_freq > 0 ? windows : all;
}

}  // namespace ztrain::config
