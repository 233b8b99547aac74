#include "program/passes/parameter_rates.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/parameter_groups.hpp"

namespace ztrain::program {

void add_stepped_pieces(OptimizerStep& step, const Cut& cut, const UnitState& state, int unit,
                        const OptimizerSpec& optimizer) {
  const auto group_of = [&](const config::ParameterSettings& rates) {
    for (std::size_t g = 0; g < step.lr_scales.size(); ++g)
      if (step.lr_scales[g] == rates.lr_scale && step.weight_decays[g] == rates.weight_decay)
        return static_cast<std::int64_t>(g);
    step.lr_scales.push_back(rates.lr_scale);
    step.weight_decays.push_back(rates.weight_decay);
    return std::ssize(step.lr_scales) - 1;
  };
  for (const Piece& p : cut.layout.pieces(unit, state.step_begin, state.step_begin + state.step_count)) {
    const ParameterShape& parameter = cut.layout.parameters()[static_cast<std::size_t>(p.parameter)];
    const SliceIndex index = slice_index(parameter.shape, parameter.slice, cut.at[Axis::tensor]);
    step.pieces.push_back({p.flat_begin - state.step_begin, p.count,
                           group_of(config::settings_of(optimizer.options, parameter.name, parameter.decay)),
                           std::bit_cast<std::int64_t>(hash_text(parameter.name)), p.slice_begin, index.run,
                           index.stride, index.offset});
  }
}

void require_patterns_match(const model::Graph& graph, const OptimizerSpec& optimizer) {
  const auto require = [&](const char* key, const std::string& pattern) {
    const auto matches = [&](const model::Parameter& p) { return glob_match(pattern, p.name); };
    REQUIRE(std::any_of(graph.parameters.begin(), graph.parameters.end(), matches),
            "{}: '{}' matches no parameter; parameters are named as {}", key, printable(pattern, most_quoted),
            graph.parameters.front().name);
  };
  for (const std::string& pattern : optimizer.options.no_decay) require("optimizer.no_decay", pattern);
  for (const config::ParameterGroup& group : optimizer.options.groups)
    require("optimizer.groups", group.match);
}

}  // namespace ztrain::program
