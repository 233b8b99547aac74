#include "config/parameter_groups.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace ztrain::config {

ParameterSettings settings_of(const Optimizer& optimizer, std::string_view parameter, bool decayed) {
  const auto& no_decay = optimizer.no_decay;
  const bool excepted = std::any_of(no_decay.begin(), no_decay.end(),
                                    [&](const std::string& p) { return glob_match(p, parameter); });
  const double decay = decayed && !excepted ? optimizer.weight_decay : 0;
  const auto matches = [&](const ParameterGroup& group) { return glob_match(group.match, parameter); };
  const auto group = std::find_if(optimizer.groups.rbegin(), optimizer.groups.rend(), matches);
  if (group == optimizer.groups.rend()) return {1, decay};
  return {group->lr_scale, group->weight_decay.value_or(decay)};
}

}  // namespace ztrain::config
