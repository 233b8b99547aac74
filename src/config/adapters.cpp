#include "config/adapters.hpp"

#include "base/text.hpp"

namespace ztrain::config {

bool names_experts(std::string_view name) {
  constexpr std::string_view part = "experts.";
  return name.starts_with(part) || name.find(".experts.") != std::string_view::npos;
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

std::string adapted_module(const std::string& layer) {
  const std::string last = last_part(layer);
  if (!names_experts(layer) || (last != "gate_proj" && last != "up_proj")) return layer;
  return layer.substr(0, layer.size() - last.size()) + "gate_up_proj";
}

bool is_target(const std::string& target, const std::string& module) {
  if (names_experts(target) != names_experts(module)) return false;
  if (target.find('.') == std::string::npos) return glob_match(target, last_part(module));
  return glob_match(target, module) || glob_match("*." + target, module);
}

}  // namespace ztrain::config
