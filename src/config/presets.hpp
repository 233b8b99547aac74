#pragma once
// Named settings: model dims and precisions. A preset sets keys as the deck would; keys given in the deck win
// over it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ztrain::config {

/// (key, value as TOML)
using Settings = std::vector<std::pair<std::string, std::string>>;

/// "custom" and every named model.
std::vector<std::string> model_preset_names();
/// What the model preset sets; nothing for "custom" and for unknown names.
Settings model_preset(std::string_view name);

std::vector<std::string> precision_preset_names();
Settings precision_preset(std::string_view name);

}  // namespace ztrain::config
