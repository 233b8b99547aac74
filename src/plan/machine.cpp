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
  if (c.ranks_per_node > 0) m.ranks_per_node = static_cast<int>(c.ranks_per_node);
  m.peak_flops = c.peak_tflops > 0 ? c.peak_tflops * 1e12 : default_peak(deck.precision.parameters);
  return m;
}

}  // namespace ztrain::plan
