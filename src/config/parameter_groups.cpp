#include "config/parameter_groups.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace ztrain::config {

ParameterSettings settings_of(const Optimizer& optimizer, std::string_view parameter, bool decayed) {
  ParameterSettings settings{1, optimizer.weight_decay};
  const auto matches = [&](const ParameterGroup& group) { return glob_match(group.match, parameter); };
  const auto group = std::find_if(optimizer.groups.rbegin(), optimizer.groups.rend(), matches);
  if (group != optimizer.groups.rend()) {
    settings = {group->lr_scale, group->weight_decay.value_or(optimizer.weight_decay)};
  }
  const auto& no_decay = optimizer.no_decay;
  const bool excepted = std::any_of(no_decay.begin(), no_decay.end(),
                                    [&](const std::string& p) { return glob_match(p, parameter); });
  if (!decayed || excepted) settings.weight_decay = 0;
  return settings;
}

}  // namespace ztrain::config
