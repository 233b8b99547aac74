#include "config/fields/presets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ranges>

#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/architectures.hpp"
#include "config/fields/value.hpp"

namespace ztrain::config {
namespace {

struct PrecisionRow {
  const char *name, *parameters, *gradients, *reduce, *master, *moments, *rounding;
};
constexpr std::array precision_rows{
    PrecisionRow{"fp32", "fp32", "fp32", "fp32", "fp32", "fp32", "auto"},
    PrecisionRow{"bf16", "bf16", "fp32", "fp32", "fp32", "fp32", "auto"},
    PrecisionRow{"bf16-pure", "bf16", "bf16", "bf16", "bf16", "bf16", "stochastic"},
    PrecisionRow{"fsdp-mixed", "bf16", "fp32", "fp32", "fp32", "fp32", "auto"},
    PrecisionRow{"fsdp-bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "nearest"},
    PrecisionRow{"deepspeed-bf16", "bf16", "bf16", "bf16", "fp32", "fp32", "auto"},
    PrecisionRow{"deepspeed-fp16", "fp16", "fp16", "fp16", "fp32", "fp32", "auto"},
    PrecisionRow{"fp64", "fp64", "fp64", "fp64", "fp64", "fp64", "auto"},
};

struct ClusterRow {
  const char* name;
  const char* device;                     ///< glob of the driver's name for the device; "": not known
  double device_memory, host_memory;      ///< GB of a GPU; GB of a node
  double peak_tflops, peak_fp32;          ///< dense, in 16 bits; in fp32 without shortened products
  double peak_tf32, peak_fp8;             ///< dense; 0: not available
  double memory_bandwidth, intra, inter;  ///< GB/s; the last two per direction
  double host;                            ///< GB/s of the PCIe link, in each direction
  double host_memory_bandwidth;           ///< GB/s: an eighth of the bandwidth that the host's memory reaches
};
// Figures of the makers' data sheets, for modules in their usual nodes of eight: SXM with NVLink, OAM with
// Infinity Fabric, PCIe. The network is one port of 400 Gb/s for each GPU (A100: 200). Peaks are without
// sparsity, half of what the sheets print larger. Memory is nominal: drivers show a little more. The host's
// memory is two sockets with eight channels of DDR5-4800 (A100: DDR4-3200; B200: DDR5-5600), of which 0.8 is
// reached.
constexpr std::array cluster_rows{
    ClusterRow{"h100-80gb", "*H100*HBM3*", 80, 2000, 989, 67, 495, 1979, 3350, 450, 50, 50, 60},
    ClusterRow{"h200-141gb", "*H200", 141, 2000, 989, 67, 495, 1979, 4800, 450, 50, 50, 60},
    ClusterRow{"a100-80gb", "*A100*80GB*", 80, 1000, 312, 19.5, 156, 0, 2039, 300, 25, 25, 40},
    ClusterRow{"a100-40gb", "*A100*40GB*", 40, 1000, 312, 19.5, 156, 0, 1555, 300, 25, 25, 40},
    ClusterRow{"mi300x", "*MI300X*", 192, 2000, 1307, 163.4, 653.7, 2614.9, 5300, 448, 50, 50, 60},
    ClusterRow{"h100-pcie-80gb", "*H100 PCIe*", 80, 2000, 756, 51, 378, 1513, 2000, 64, 50, 50, 60},
    ClusterRow{"b200-180gb", "*B200*", 180, 2000, 2250, 75, 1125, 4500, 8000, 900, 50, 50, 70},
};
// Measured ceilings of large products are near 0.8 of the peak, of streaming kernels near 0.9 of the
// bandwidth; the context of the driver and the buffers of the communication library take about 3 GB.
constexpr double compute_efficiency = 0.7, memory_efficiency = 0.85, outside_memory = 3;
// Eight drives of 3 to 7 GB/s in a node of eight GPUs, reading and writing.
constexpr double nvme_bandwidth = 3;

/// Returns the row of this name, or null.
template <class Rows>
auto* find_row(const Rows& rows, std::string_view name) {
  const auto* row = std::ranges::find_if(rows, [&](const auto& r) { return name == r.name; });
  return row == rows.end() ? nullptr : row;
}

template <class Rows>
std::vector<std::string> names_of(const Rows& rows, std::vector<std::string> names = {}) {
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

/// Sets a key, or adds it.
void set(Settings& settings, const std::string& key, std::string_view value) {
  const auto found = std::ranges::find(settings, key, &Settings::value_type::first);
  if (found == settings.end())
    settings.emplace_back(key, value);
  else
    found->second = value;
}

Settings settings_of(const Architecture& a, const ModelPreset& row) {
  Settings s{{"model.family", toml_string(a.family)},
             {"model.hidden_size", fmt::to_string(row.hidden)},
             {"model.intermediate_size", fmt::to_string(row.intermediate)},
             {"model.num_hidden_layers", fmt::to_string(row.layers)},
             {"model.num_attention_heads", fmt::to_string(row.heads)},
             {"model.num_key_value_heads", fmt::to_string(row.kv_heads)},
             {"model.vocab_size", fmt::to_string(row.vocab)},
             {"model.head_dim", fmt::to_string(row.hidden / row.heads)},
             {"model.sliding_window", "0"},
             {"model.rms_norm_eps", "1e-5"},
             {"model.rope_theta", "10000"},
             {"model.tie_word_embeddings", "false"},
             {"model.rope_scaling", toml_string("none")}};
  for (const std::string_view pairs : {row.shared, row.own})
    for (const auto& word : std::views::split(pairs, ' ')) {
      const std::string_view pair(word.begin(), word.end());
      const std::size_t equals = pair.find('=');
      if (equals != pair.npos)
        set(s, fmt::format("model.{}", pair.substr(0, equals)), pair.substr(equals + 1));
    }
  return s;
}

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names{"custom"};
  for (const Architecture& a : architectures())
    for (const ModelPreset& preset : a.presets) names.emplace_back(preset.name);
  return names;
}

Settings model_preset(std::string_view name) {
  for (const Architecture& a : architectures())
    for (const ModelPreset& preset : a.presets)
      if (preset.name == name) return settings_of(a, preset);
  return {};
}

std::vector<std::string> precision_preset_names() {
  return names_of(precision_rows);
}

Settings precision_preset(std::string_view name) {
  const PrecisionRow* row = find_row(precision_rows, name);
  if (row == nullptr) return {};
  return {{"precision.parameters", toml_string(row->parameters)},
          {"precision.gradients", toml_string(row->gradients)},
          {"precision.reduce", toml_string(row->reduce)},
          {"precision.master", toml_string(row->master)},
          {"precision.moments", toml_string(row->moments)},
          {"precision.rounding", toml_string(row->rounding)}};
}

std::vector<std::string> cluster_preset_names() {
  return names_of(cluster_rows, {"custom"});
}

Settings cluster_preset(std::string_view name) {
  const ClusterRow* row = find_row(cluster_rows, name);
  if (row == nullptr) return {};
  return {{"cluster.ranks_per_node", "8"},
          {"cluster.device_memory", fmt::to_string(row->device_memory)},
          {"cluster.host_memory", fmt::to_string(row->host_memory)},
          {"cluster.outside_memory", fmt::to_string(outside_memory)},
          {"cluster.peak_tflops", fmt::to_string(row->peak_tflops)},
          {"cluster.compute_efficiency", fmt::to_string(compute_efficiency)},
          {"cluster.memory_bandwidth", fmt::to_string(row->memory_bandwidth)},
          {"cluster.memory_efficiency", fmt::to_string(memory_efficiency)},
          {"cluster.intra_node_bandwidth", fmt::to_string(row->intra)},
          {"cluster.inter_node_bandwidth", fmt::to_string(row->inter)},
          {"cluster.host_bandwidth", fmt::to_string(row->host)},
          {"cluster.host_memory_bandwidth", fmt::to_string(row->host_memory_bandwidth)},
          {"cluster.nvme_bandwidth", fmt::to_string(nvme_bandwidth)}};
}

double cluster_peak(std::string_view name, DType parameters) {
  const ClusterRow* row = find_row(cluster_rows, name);
  if (row == nullptr) return 0;
  return size_of(parameters) == 2 ? row->peak_tflops : parameters == DType::f32 ? row->peak_fp32 : 0;
}

std::string_view name_of(Arithmetic arithmetic) {
  constexpr std::array<std::string_view, 5> names{"fp64", "fp32", "tf32", "16-bit", "fp8"};
  return names.at(at(arithmetic));
}

double device_peak(std::string_view device, Arithmetic arithmetic) {
  for (const auto& row : cluster_rows) {
    const std::array<double, 5> peaks{0, row.peak_fp32, row.peak_tf32, row.peak_tflops, row.peak_fp8};
    if (glob_match(row.device, device)) return peaks.at(at(arithmetic));
  }
  return 0;
}

}  // namespace ztrain::config
