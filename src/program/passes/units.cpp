#include "program/passes/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/validate/refusals.hpp"
#include "model/trainable.hpp"

namespace ztrain::program {
namespace {

using model::Graph;
using model::Parameter;

std::int64_t size_of(const Parameter& p) {
  return elements(p.shape);
}

std::vector<std::int64_t> unit_sizes(const Graph& graph) {
  std::vector<std::int64_t> sizes(graph.units.size(), 0);
  for (const Parameter& p : graph.parameters) sizes[at(p.unit)] += size_of(p);
  return sizes;
}

/// The first of the parameters that this one lies beside: what is joined stays in one unit.
std::size_t leader_of(const Graph& graph, std::size_t parameter) {
  const int joined = graph.parameters[parameter].joined;
  return joined >= 0 ? at(joined) : parameter;
}

/// The longest module name in front of a parameter's name that matches a pattern; "" when none does. Marks
/// the patterns that were of use.
std::string matching_module(const std::string& parameter, const std::vector<std::string>& patterns,
                            std::vector<bool>& used) {
  for (std::size_t end = parameter.rfind('.'); end != std::string::npos && end > 0;
       end = parameter.rfind('.', end - 1)) {
    const std::string module = parameter.substr(0, end);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!glob_match_parts(patterns[i], module)) continue;
      used[i] = true;
      return module;
    }
  }
  return "";
}

/// What is joined goes where the first of it goes: a pattern for another of them would be of no effect.
void require_no_follower(const Graph& graph, const std::string& pattern) {
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const std::size_t leader = leader_of(graph, i);
    std::vector<bool> used(1);
    if (leader == i || matching_module(graph.parameters[i].name, {pattern}, used).empty()) continue;
    config::refuse("sharding.unit_patterns model.*", {{"pattern", printable(pattern, most_quoted)},
                                                      {"parameter", graph.parameters[i].name},
                                                      {"leader", graph.parameters[leader].name}});
  }
}

/// The name of every parameter's new unit; of what is joined, that of the first counts.
std::vector<std::string> names_by_pattern(const Graph& graph, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  std::vector<bool> used(patterns.size(), false);
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& p = graph.parameters[leader_of(graph, i)];
    const std::string module = matching_module(p.name, patterns, used);
    names.push_back(module.empty() ? graph.units[at(p.unit)].name : module);
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (!used[i]) require_no_follower(graph, patterns[i]);
    if (const std::string tied = model::on_tied_head(graph, patterns[i]); !used[i] && !tied.empty())
      fail("sharding.unit_patterns: '{}' matches no module: {}", printable(patterns[i], most_quoted), tied);
    REQUIRE(
        used[i],
        "sharding.unit_patterns: '{}' matches no module of the model; modules are named as in {}, without "
        "its last word",
        printable(patterns[i], most_quoted), graph.parameters.front().name);
  }
  return names;
}

std::vector<std::string> names_by_size(const Graph& graph, std::int64_t least) {
  const std::vector<std::int64_t> sizes = unit_sizes(graph);
  std::vector<std::string> joined(graph.units.size());
  for (std::size_t first = 0; first < sizes.size();) {
    std::size_t end = first;
    std::int64_t total = 0;
    while (end < sizes.size() && (total < least || end == first)) total += sizes[end++];
    const std::string name = end - first == 1 ? graph.units[first].name
                                              : graph.units[first].name + " to " + graph.units[end - 1].name;
    for (; first < end; ++first) joined[first] = name;
  }
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters) names.push_back(joined[at(p.unit)]);
  return names;
}

/// By parameter: elements of all that follow it.
std::vector<std::int64_t> joined_sizes(const Graph& graph) {
  std::vector<std::int64_t> sizes(graph.parameters.size(), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[leader_of(graph, i)] += size_of(graph.parameters[i]);
  return sizes;
}

/// Returns whether a parameter is a vector, and matrices have units of their own because the optimizer steps
/// them whole. Alone in its unit, a block's vectors would cost gathers and reductions of a few kilobytes.
bool lies_beside_matrices(const Graph& graph, std::size_t parameter) {
  const Parameter& p = graph.parameters[parameter];
  return p.trainable && p.shape.size() == 1 && std::ranges::any_of(graph.parameters, &Parameter::by_matrix);
}

std::vector<std::string> unit_names(const Graph& graph, const UnitOptions& options) {
  switch (options.granularity) {
    case UnitGranularity::model:
      return std::vector<std::string>(graph.parameters.size(), "model");
    case UnitGranularity::size:
      return names_by_size(graph, options.min_parameters);
    case UnitGranularity::pattern:
      return names_by_pattern(graph, options.patterns);
    case UnitGranularity::block:
      break;
  }
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters) names.push_back(graph.units[at(p.unit)].name);
  return names;
}

}  // namespace

void group_parameters(Graph& graph, const UnitOptions& options, const std::vector<AxisSet>& summed_over) {
  const std::vector<std::string> names = unit_names(graph, options);
  std::map<std::string, int> gathers;  // what is gathered at once, by name
  // Keyed by the name; trainable or not; stepped by matrices or not; 8-bit codes to compute with or not; in 4
  // or 8 bits or not; axes of its shards, and of its gradient's sum; on which other rank of the pipeline.
  std::map<std::tuple<std::string, bool, bool, bool, bool, std::uint32_t, std::uint32_t, int>, int> numbers;
  std::vector<model::Unit> units;
  const auto number_of = [&](const std::string& name, bool kept_whole, std::size_t parameter) {
    const Parameter& p = graph.parameters[parameter];
    const AxisSet summed = summed_over.empty() ? AxisSet() : summed_over[parameter];
    const std::string others =
        p.state_over == state_axes ? "" : fmt::format(" (sharded over {})", to_string(p.state_over));
    const int together = gathers.try_emplace(name, static_cast<int>(gathers.size())).first->second;
    const auto [it, fresh] = numbers.try_emplace({name, p.trainable, p.by_matrix, p.coded(), p.form.any(),
                                                  p.state_over.bits(), summed.bits(), p.other_rank},
                                                 static_cast<int>(units.size()));
    if (fresh)
      units.push_back({name + (summed.contains(Axis::tensor) ? " (summed over tensor)" : "") + others +
                           (p.other_rank < 0 ? "" : " (of two stages)"),
                       together, p.trainable, p.constant, kept_whole, p.coded(), p.other_rank, p.form,
                       p.by_matrix});
    return it->second;
  };
  const std::vector<std::int64_t> sizes = joined_sizes(graph);
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    Parameter& p = graph.parameters[i];
    if (p.elsewhere) {
      p.unit = -1;
      continue;
    }
    const std::size_t leader = leader_of(graph, i);
    const bool is_small =
        sizes[leader] < options.persistence_threshold || lies_beside_matrices(graph, leader);
    p.unit = p.constant ? number_of("constants", true, i)
             : is_small ? number_of("parameters kept whole", true, i)
                        : number_of(names[leader], false, i);
  }
  const auto is_trained = [&](int together) {
    return std::ranges::any_of(
        units, [&](const model::Unit& unit) { return unit.together == together && unit.trainable; });
  };
  for (model::Unit& unit : units) {
    const bool beside_trained = !unit.trainable && is_trained(unit.together);
    unit.name += unit.by_matrix                 ? " (matrices)"
                 : unit.form.any()              ? " (quantised)"
                 : unit.coded && beside_trained ? " (frozen, fp8)"
                 : unit.coded                   ? " (fp8)"
                 : beside_trained               ? " (frozen)"
                                                : "";
  }
  graph.units = std::move(units);
}

}  // namespace ztrain::program
