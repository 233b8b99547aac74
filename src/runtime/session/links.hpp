#pragma once
// How fast the nodes of a job reach each other: short all-reduces of MPI between every two nodes, and within
// each. A step's own collectives are NCCL's on GPUs; what a sick cable or switch does to a node shows in
// both.

#include <functional>
#include <string>
#include <vector>

#include "runtime/session/session.hpp"

namespace ztrain::runtime {

struct LinksRequest {
  int mebibytes = 16;  ///< of each rank's all-reduce
  int times = 5;       ///< the fastest counts
};

struct Links {
  std::vector<std::string> hosts;  ///< by node
  /// bytes/s, all ranks of both nodes together, [node][other]; of a node with itself: each rank's share of an
  /// all-reduce within it. 0: not measured.
  std::vector<std::vector<double>> bytes_per_second;
};

/// Whom a node meets in a round: in nodes - 1 rounds (one more where they are odd) each meets each other
/// once. -1: nobody.
int partner_of(int node, int round, int nodes);
int rounds_of(int nodes);

/// Collective. at: told what comes next, on each rank.
Links measure_links(const Session& session, const LinksRequest& request,
                    const std::function<void(const std::string&)>& at);

/// Nodes whose fastest link has less than this share of what is usual: of the median of all nodes' fastest.
/// Of two nodes neither is known to be the slow one.
std::vector<int> slow_nodes(const Links& links, double share);

inline constexpr int most_measurements = 3;
/// Of each link the fastest of up to most_measurements, which end when no node is slow: one that others keep
/// busy for a moment is not one to do without.
Links fastest_of(const std::function<Links()>& measure, double share);

/// A line for each node; then one that begins with "slow node HOST: " for each that is slow.
std::string links_text(const Links& links, double share);

}  // namespace ztrain::runtime
