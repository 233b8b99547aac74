#pragma once
// Named settings: model dims, precisions and machines. A preset sets keys as the deck would; keys given in
// the deck win over it.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.hpp"

namespace ztrain::config {

/// Pairs of a key and its value as TOML.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// Returns "custom" and every named model.
std::vector<std::string> model_preset_names();
/// Returns the settings of a model preset; none for "custom" and for unknown names.
Settings model_preset(std::string_view name);

/// These are the dtypes and the rounding of FSDP's and DeepSpeed's usual configurations.
std::vector<std::string> precision_preset_names();
Settings precision_preset(std::string_view name);

/// Returns "custom" and every named machine.
std::vector<std::string> cluster_preset_names();
/// Returns published figures per GPU; none for "custom" and for unknown names.
Settings cluster_preset(std::string_view name);
/// Returns the machine's dense peak for parameters of this dtype, in TFLOP/s; 0: not known.
double cluster_peak(std::string_view name, DType parameters);

/// Arithmetic of matrix products.
enum class Arithmetic : std::uint8_t { fp64, fp32, tf32, bits16, fp8 };
/// Returns "fp32", "16-bit", ...
std::string_view name_of(Arithmetic arithmetic);
/// Returns the dense peak in TFLOP/s of a device by its driver's name ("NVIDIA H100 80GB HBM3"), from the
/// same table; 0: not known.
double device_peak(std::string_view device, Arithmetic arithmetic);

}  // namespace ztrain::config
