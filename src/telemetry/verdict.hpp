#pragma once
// Says at the end of a run what its steps were bound by.

#include <string>

#include "telemetry/metrics_file.hpp"

namespace ztrain::telemetry {

/// Adds up what the steps of one rank spend their time on.
class Verdict {
 public:
  /// host_drives: the host that computes also moves communications and copies, which then take their seconds
  /// from computing. Otherwise they count as far as computing waits for them.
  explicit Verdict(bool host_drives) : host_drives_(host_drives) {}

  /// Adds a step. The first one, which warms up, does not count.
  void add(const PhaseSeconds& step);

  /// Returns "bound by computing: 71% of 12.3 s; waiting for collectives 15%, ..." with the largest share
  /// first, and those below 0.5% left out. Returns "" if no step was timed in full.
  std::string text() const;

 private:
  bool host_drives_;
  int steps_ = 0;
  double computing_ = 0, collectives_ = 0, messages_ = 0, tiers_ = 0, data_ = 0, saving_ = 0, all_ = 0;
};

}  // namespace ztrain::telemetry
