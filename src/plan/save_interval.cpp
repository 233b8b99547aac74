#include "plan/save_interval.hpp"

#include <cmath>

#include "base/shape.hpp"

namespace ztrain::plan {

SaveInterval save_interval(const Cost& c) {
  const NodeRates& rates = c.machine.rates.nodes;
  const double nodes = static_cast<double>(ceil_div(c.ranks, c.machine.ranks_per_node));
  SaveInterval s;
  s.save = c.checkpoint_bytes / (nodes * rates.write);
  s.failures = rates.between_failures / nodes;
  s.best = std::sqrt(2 * s.save * s.failures);
  s.lost = s.save / s.best + s.best / (2 * s.failures);
  return s;
}

}  // namespace ztrain::plan
