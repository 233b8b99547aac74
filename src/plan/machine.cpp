#include "plan/machine.hpp"

namespace ztrain::plan {
namespace {

/// Dense peak of an H100 SXM where the deck gives none.
double default_peak(DType parameters) {
  return size_of(parameters) <= 2 ? 989e12 : 67e12;
}

}  // namespace

Machine machine_of(const config::Deck& deck) {
  const config::Cluster& c = deck.cluster;
  Machine m;
  const auto take = [](double& to, double value, double unit) {
    if (value > 0) to = value * unit;
  };
  if (c.ranks_per_node > 0) m.ranks_per_node = static_cast<int>(c.ranks_per_node);
  take(m.device_memory, c.device_memory, 1e9);
  take(m.host_memory, c.host_memory, 1e9);
  take(m.outside_memory, c.outside_memory, 1e9);
  m.peak_flops = c.peak_tflops > 0 ? c.peak_tflops * 1e12 : default_peak(deck.precision.parameters);
  take(m.compute_efficiency, c.compute_efficiency, 1);
  take(m.memory_bandwidth, c.memory_bandwidth, 1e9);
  take(m.memory_efficiency, c.memory_efficiency, 1);
  take(m.intra_node_bandwidth, c.intra_node_bandwidth, 1e9);
  take(m.inter_node_bandwidth, c.inter_node_bandwidth, 1e9);
  take(m.latency, c.latency, 1e-6);
  return m;
}

}  // namespace ztrain::plan
