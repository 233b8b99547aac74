#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "config/fields/model_keys.hpp"
#include "config/hf/hf_keys.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;
using Types = std::vector<std::string>;

constexpr const char *types_key = "layer_types", *pattern_key = "sliding_window_pattern",
                     *interval_key = "no_rope_layer_interval";

/// Returns the shortest list that gives the whole one when it is repeated.
template <class List>
List shortest(const List& whole) {
  for (std::size_t n = 1; n < whole.size(); ++n) {
    bool same = true;
    for (std::size_t i = n; i < whole.size(); ++i) same = same && whole[i] == whole[i % n];
    if (same) return List(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
  }
  return whole;
}

/// Returns how often something recurs: every n-th layer is another. 0: config.json does not say it.
std::int64_t interval(const Members& c, const Architecture& a, const char* key) {
  if (find_hf(a, key) == nullptr || !c.has(key)) return 0;
  const std::int64_t n = c.integer(key);
  REQUIRE(n > 0 && n <= 1000, "{}: {} = {}: must be from 1 to 1000", c.where(), key, n);
  return n;
}

void require_length(const Members& c, const char* key, std::int64_t layers, const char* things) {
  const json& list = c.at(key);
  REQUIRE(list.is_array() && static_cast<std::int64_t>(list.size()) == layers,
          "{}: {} must be a list of {} {}, one for each layer", c.where(), key, layers, things);
}

void read_rotary_layers(const Members& c, const Architecture& a, Model& m) {
  const ModelKey* row = find_key(a, "model.no_rope_layers");
  if (row == nullptr) return;
  if (c.has(row->hf)) {
    require_length(c, row->hf, m.num_hidden_layers, "numbers");
    for (const double x : m.no_rope_layers)
      REQUIRE(x == 0 || x == 1, "{}: {} holds {}: must be 0 or 1", c.where(), row->hf, x);
  } else if (const std::int64_t n = interval(c, a, interval_key); n > 0) {
    m.no_rope_layers.assign(static_cast<std::size_t>(n), 1);
    m.no_rope_layers.back() = 0;
  }
  std::vector<double> all;
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer)
    all.push_back(has_rope(m, layer) ? 1 : 0);
  m.no_rope_layers = std::ranges::count(all, 0.0) == 0 ? std::vector<double>{} : shortest(all);
}

/// Returns which layers have the window if layer_types is not there.
Types unlisted(const Members& c, const Architecture& a, const Model& m) {
  const std::int64_t layers = m.num_hidden_layers, pattern = interval(c, a, pattern_key);
  const ModelKey* row = find_key(a, "model.layer_types");
  const Types standard = row == nullptr ? Types{} : parse_json(row->standard).get<Types>();
  const bool by_rope = find_key(a, "model.no_rope_layers") != nullptr;
  Types types;
  for (std::int64_t i = 0; i < layers; ++i) {
    bool windowed = i >= m.full_attention_layers;
    if (pattern > 0)
      windowed = (i + 1) % pattern != 0;
    else if (by_rope)
      windowed = !has_rope(m, i);
    else
      windowed = windowed && at_layer<std::string>(standard, i, sliding_attention) == sliding_attention;
    types.emplace_back(windowed && m.sliding_window > 0 ? sliding_attention : full_attention);
  }
  return types;
}

/// Returns layer_types.
Types listed(const Members& c, std::int64_t layers) {
  require_length(c, types_key, layers, "names");
  for (const auto& type : c.at(types_key))
    REQUIRE(type == full_attention || type == sliding_attention,
            "{}: layer_types holds {}: not supported; ztrain has full_attention and sliding_attention",
            c.where(), json_text(type).substr(0, 100));
  return c.at(types_key).get<Types>();
}

}  // namespace

void read_layers(const Members& c, const Architecture& a, Model& m) {
  read_rotary_layers(c, a, m);
  const bool unused = find_hf(a, "use_sliding_window") != nullptr && !c.boolean("use_sliding_window", false);
  if (unused) m.sliding_window = 0;
  REQUIRE(
      m.sliding_window > 0 || unused || find_hf(a, "sliding_window") == nullptr || !c.has("sliding_window"),
      "{}: sliding_window = 0: must be positive, or null for none", c.where());
  const Types without = unlisted(c, a, m);
  const Types types = c.has(types_key) ? listed(c, m.num_hidden_layers) : without;
  const auto windows = std::ranges::count(types, sliding_attention);
  REQUIRE(types == without || (find_key(a, "model.layer_types") != nullptr && m.sliding_window > 0),
          "{}: layer_types asks for windows in {} of {} layers, but the model's other keys ({}) say {}",
          c.where(), windows, m.num_hidden_layers, a.hf_class,
          std::ranges::count(without, sliding_attention));
  const auto first = std::ranges::find(types, sliding_attention) - types.begin();
  const bool later =
      find_key(a, "model.full_attention_layers") != nullptr && windows == m.num_hidden_layers - first;
  const bool by_list = windows > 0 && !later && find_key(a, "model.layer_types") != nullptr;
  if (windows == 0) m.sliding_window = 0;
  m.full_attention_layers = windows > 0 && later ? first : 0;
  m.layer_types = by_list ? shortest(types) : Types{};
}

void write_layers(const Architecture& a, const Model& m, json& config) {
  if (find_hf(a, "use_sliding_window") != nullptr) config["use_sliding_window"] = m.sliding_window > 0;
  if (find_hf(a, "max_window_layers") != nullptr && m.sliding_window == 0)
    config["max_window_layers"] = m.num_hidden_layers;
  json types = json::array(), turned = json::array();
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer) {
    types.push_back(layer_type(m, layer));
    turned.push_back(has_rope(m, layer) ? 1 : 0);
  }
  if (find_hf(a, types_key) != nullptr) config[types_key] = types;
  // Such classes ask for a window although no layer has one.
  if (find_hf(a, types_key) != nullptr && find_hf(a, "use_sliding_window") == nullptr &&
      m.sliding_window == 0)
    config["sliding_window"] = 4096;
  if (find_key(a, "model.no_rope_layers") != nullptr) config["no_rope_layers"] = turned;
  if (find_key(a, "model.mlp_only_layers") != nullptr)
    config["mlp_only_layers"] = std::vector<std::int64_t>(m.mlp_only_layers.begin(), m.mlp_only_layers.end());
}

}  // namespace ztrain::config
