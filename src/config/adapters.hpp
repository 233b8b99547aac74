#pragma once
// Names of low-rank adapters and of the layers that they stand beside (Hu et al., "LoRA: Low-Rank Adaptation
// of Large Language Models", 2021). The names are those of the PEFT library without its prefix. A linear
// layer with the weight "<layer>.weight" W [n, k] has the factors "<layer>.lora_A.weight" A [rank, k] and
// "<layer>.lora_B.weight" B [n, rank]. W, A and B of experts have one dim more before these, the expert.
//
// The gate and the up projection of experts share their A, as they do in PEFT: transformers 5 keeps the two
// in one tensor "gate_up_proj", and PEFT adapts tensors. So "experts.gate_up_proj.lora_A.weight" belongs to
// "experts.gate_proj.lora_B.weight" and to "experts.up_proj.lora_B.weight".

#include <cstdint>
#include <string>
#include <string_view>

#include "base/weight_form.hpp"

namespace ztrain::config {

struct Lora;

/// Returns how frozen weights are kept.
WeightForm weight_form(const Lora& lora);

// Ends of the names of the factors, and of the weight that they belong to.
inline constexpr std::string_view lora_a_ending = ".lora_A.weight", lora_b_ending = ".lora_B.weight",
                                  weight_ending = ".weight";
/// End of the name of the magnitudes [n] of a layer's outputs (lora.dora).
inline constexpr std::string_view magnitude_ending = ".lora_magnitude_vector";

/// Returns the name of the weight whose rows have these magnitudes, or "" for another parameter.
std::string magnitude_of(const std::string& parameter);

/// Entry of lora.targets that alone stands for all linear layers of the blocks, as in PEFT.
inline constexpr const char* all_linear = "all-linear";

/// Returns the factor of what an adapter adds: alpha / rank, or with rslora alpha / sqrt(rank).
double adapter_scale(double alpha, std::int64_t rank, bool rslora);

/// Returns whether a layer's name, or an entry of lora.targets, has the part "experts".
bool names_experts(std::string_view name);

/// Returns the last part of a module's name: "self_attn.q_proj" -> "q_proj".
std::string last_part(const std::string& module);

/// Returns the module of a parameter: "lm_head.weight" -> "lm_head".
std::string module_of(const std::string& parameter);

/// Returns the name that entries of lora.targets and PEFT have for a layer: the gate and the up projection of
/// experts are "gate_up_proj", and every other layer keeps its name.
std::string adapted_module(const std::string& layer);

/// Returns whether an entry of lora.targets means a module. An entry without a dot is a pattern of the
/// module's last part. An entry with a dot is a pattern of its whole name or of the parts at its end. Only an
/// entry that has the part "experts" means experts.
bool is_target(const std::string& target, const std::string& module);

}  // namespace ztrain::config
