#include "plan/published.hpp"

#include <cmath>
#include <limits>

#include "config/fields/value.hpp"
#include "plan/rates/preset_files.hpp"

namespace ztrain::plan {
namespace {

/// The value of a key among a row's overrides; "" where it has none.
std::string value_in(const toml::table& row, std::string_view key) {
  for (const toml::node& entry : *row["set"].as_array()) {
    const std::string text = entry.value_or(std::string());
    if (text.starts_with(std::string(key) + "=")) return text.substr(key.size() + 1);
  }
  return "";
}

double apart(double a, double b) {
  return std::fabs(std::log2(a / b));
}

}  // namespace

std::optional<Published> nearest_published(const Cost& c) {
  const std::string& preset = c.deck.cluster.preset;
  const bool fp8 = c.deck.precision.fp8 != "none", adapters = c.deck.lora.rank > 0;
  const toml::table table = config::parse_toml(published_rows, "published.toml");
  std::optional<Published> nearest;
  double least = std::numeric_limits<double>::max();
  for (const toml::node& node : *table["row"].as_array()) {
    const toml::table& row = *node.as_table();
    const std::string device = row["device"].value_or(std::string());
    if (preset != device || !row.contains("tokens")) continue;
    if ((value_in(row, "precision.fp8") != "") != fp8 || (value_in(row, "lora.rank") != "") != adapters)
      continue;
    const Published p{row["source"].value_or(std::string()), row["parameters"].value_or(1.0),
                      row["ranks"].value_or(1.0), std::stod(value_in(row, "data.sequence")),
                      row["tokens"].value_or(0.0)};
    const double models = apart(p.parameters, static_cast<double>(c.parameters));
    const double distance =
        3 * models + apart(p.ranks, c.ranks) + apart(p.sequence, static_cast<double>(c.deck.data.sequence));
    if (models > 2 || distance >= least) continue;
    least = distance;
    nearest = p;
  }
  return nearest;
}

}  // namespace ztrain::plan
