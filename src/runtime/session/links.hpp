#pragma once
// Measures how fast the nodes of a job reach each other, by short all-reduces of MPI between every two nodes
// and within each. A step's own collectives are NCCL's on GPUs, but a bad cable or switch shows in both.

#include <functional>
#include <string>
#include <vector>

#include "runtime/session/session.hpp"

namespace ztrain::runtime {

struct LinksRequest {
  int mebibytes = 16;  ///< size of each rank's all-reduce
  int times = 5;       ///< repetitions, of which the fastest counts
};

struct Links {
  std::vector<std::string> hosts;  ///< names, by node
  /// Bytes per second of all ranks of both nodes together, [node][other]. For a node with itself: each rank's
  /// share of an all-reduce within it. 0: not measured.
  std::vector<std::vector<double>> bytes_per_second;
};

/// Returns the node that a node meets in a round, or -1. In nodes - 1 rounds (one more for an odd number)
/// each meets each other once.
int partner_of(int node, int round, int nodes);
int rounds_of(int nodes);

/// Collective. Measures all links. `at` is told what comes next, on each rank.
Links measure_links(const Session& session, const LinksRequest& request,
                    const std::function<void(const std::string&)>& at);

/// Returns the nodes whose fastest link has less than this share of the median of all nodes' fastest links.
/// Of two nodes neither is known to be the slow one.
std::vector<int> slow_nodes(const Links& links, double share);

inline constexpr int most_measurements = 3;
/// Returns for each link the fastest of up to most_measurements, which end once no node is slow: a node that
/// others keep busy for a moment should not be given up.
Links fastest_of(const std::function<Links()>& measure, double share);

/// Returns a line for each node, then one that begins with "slow node HOST: " for each slow one.
std::string links_text(const Links& links, double share);

}  // namespace ztrain::runtime
