#pragma once
// Which stretches of a Program are captured as graphs and replayed.

#include <cstdint>
#include <span>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::engine {

enum class Graphs : std::uint8_t {
  none,
  compute,  ///< the stretches of kernels between communications
  step      ///< all of it, communications inside
};

/// What matters about an op.
struct Site {
  bool kernel = true;  ///< work of the compute queue, not a communication
  bool waits = false;  ///< for other queues, or lets the host wait
  bool signals = false;
};

/// Ops [begin, end).
struct Segment {
  program::OpId begin = 0, end = 0;
  bool captured = false;
  bool operator==(const Segment&) const = default;
};

/// Cuts a Program, given by its ops in issue order, into segments. A captured one is as long as it can be,
/// two ops at least; of its ops the first alone waits and the last alone signals, so that waits and signals
/// stay outside of the graph and no other queue starts later than without it. With Graphs::step all is one
/// captured segment.
std::vector<Segment> segments_of(Graphs graphs, std::span<const Site> sites);

}  // namespace ztrain::engine
