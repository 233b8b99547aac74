#include "config/adapters.hpp"

#include <cmath>

#include "base/text.hpp"
#include "config/deck.hpp"

namespace ztrain::config {

WeightForm weight_form(const Lora& lora) {
  if (lora.quantization == "int8") return {WeightCode::int8};
  if (lora.quantization == "nf4") return {WeightCode::nf4, lora.double_quantization};
  if (lora.quantization == "fp4") return {WeightCode::fp4, lora.double_quantization};
  return {};
}

std::string magnitude_of(const std::string& parameter) {
  if (!parameter.ends_with(magnitude_ending)) return "";
  return parameter.substr(0, parameter.size() - magnitude_ending.size()) + std::string(weight_ending);
}

double adapter_scale(double alpha, std::int64_t rank, bool rslora) {
  const auto width = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(width) : width);
}

bool names_experts(std::string_view name) {
  constexpr std::string_view part = "experts.";
  return name.starts_with(part) || name.find(".experts.") != std::string_view::npos;
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
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
