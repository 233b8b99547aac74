#include "plan/rates/machine.hpp"

#include <algorithm>

#include "config/validate/validate.hpp"

namespace ztrain::plan {
namespace {

/// Dense peak of an H100 SXM where the deck gives none.
double default_peak(DType parameters) {
  return size_of(parameters) <= 2 ? 989e12 : 67e12;
}

/// In the deck, on the command line or by a preset.
bool known(const config::Deck& deck, std::string_view key) {
  return config::source_of(deck, key) != "default";
}

/// In the deck or on the command line.
bool given(const config::Deck& deck, std::string_view key) {
  return known(deck, key) && !config::source_of(deck, key).starts_with("preset ");
}

}  // namespace

int product_multiprocessors(int all, const MeshShape& mesh, const config::Device& options) {
  const bool groups = mesh.ranks() > mesh[Axis::pipeline];
  const std::int64_t taken = mesh.ranks() == 1 ? 0
                             : groups          ? options.nccl_max_ctas
                                               : options.nccl_max_ctas_pairs;
  return taken == 0 || taken >= all ? 0 : all - static_cast<int>(taken);
}

Machine machine_of(const config::Deck& deck, const std::string& machine, int ranks) {
  const config::Cluster& c = deck.cluster;
  Machine m;
  // All presets are machines with GPUs.
  m.target = c.preset == "custom" ? build_target() : Target::cuda;
  // 0 is "unknown" for these; what has a default of its own, or of which 0 says something, is the deck's.
  const auto take = [](double& to, double value, double unit) {
    if (value > 0) to = value * unit;
  };
  if (c.ranks_per_node > 0) m.ranks_per_node = static_cast<int>(c.ranks_per_node);
  take(m.device_memory, c.device_memory, 1e9);
  m.device_assumed = c.device_memory <= 0;
  if (known(deck, "cluster.host_memory")) m.host_memory = c.host_memory * 1e9;
  if (c.device_memory > 0 || known(deck, "cluster.outside_memory")) m.outside_memory = c.outside_memory * 1e9;
  m.peak_assumed = c.peak_tflops <= 0;
  m.peak_flops = m.peak_assumed ? default_peak(deck.precision.parameters) : c.peak_tflops * 1e12;
  const std::vector<std::string> presets = machine_presets();
  if (!machine.empty() || std::ranges::count(presets, c.preset) > 0)
    m.rates = read_rates(machine.empty() ? c.preset : machine, std::min(ranks, m.ranks_per_node));
  const bool rated = !m.rates.sources.empty();
  m.compute_efficiency = given(deck, "cluster.compute_efficiency") || !rated ? c.compute_efficiency
                                                                             : m.rates.products.efficiency;
  take(m.memory_bandwidth, c.memory_bandwidth, 1e9);
  m.memory_efficiency =
      given(deck, "cluster.memory_efficiency") || !rated ? c.memory_efficiency : m.rates.memory.efficiency;
  take(m.intra_node_bandwidth, c.intra_node_bandwidth, 1e9);
  take(m.inter_node_bandwidth, c.inter_node_bandwidth, 1e9);
  take(m.host_bandwidth, c.host_bandwidth, 1e9);
  if (c.host_bandwidth > 0) m.host_memory_bandwidth = m.host_bandwidth;
  take(m.host_memory_bandwidth, c.host_memory_bandwidth, 1e9);
  take(m.nvme_bandwidth, c.nvme_bandwidth, 1e9);
  m.latency = given(deck, "cluster.latency") || !rated ? c.latency * 1e-6 : 0;
  m.launch = c.launch * 1e-6;
  m.multiprocessors = static_cast<int>(c.multiprocessors);
  return m;
}

}  // namespace ztrain::plan
