#pragma once
// How a reduction over a group of ranks is split over nodes. Sums of 16-bit elements are exchanged rank by
// rank and added in fp32; across nodes each rank would send its contribution to every rank elsewhere. Such
// sums are therefore formed in two steps: within each node in rank order, then over the nodes in node order.
// Between nodes a rank then sends one partial sum in fp32 for each other node.

#include "base/dtype.hpp"
#include "layout/mesh.hpp"

namespace ztrain {

/// Members of a group, and how many of them share a node. The members of a node are neighbours in the group.
struct SumGroup {
  int ranks = 1;
  /// Divides ranks. Equals ranks if the group is on one node, has at most two members or has no even split.
  int on_node = 1;

  /// Makes a group whose sums take one step.
  constexpr SumGroup(int members) : ranks(members), on_node(members) {}
  constexpr SumGroup(int members, int members_on_node) : ranks(members), on_node(members_on_node) {}

  constexpr int nodes() const { return ranks / on_node; }
  /// Returns whether sums of elements of type `in` take two steps. With two members on a node the fp32
  /// partial sums are as many bytes as the contributions, so that two steps would save nothing.
  constexpr bool by_node(DType in) const { return size_of(in) == 2 && on_node > 2 && on_node < ranks; }
};

/// Returns what all groups over `axes` are under MeshShape::per_node. They have no even split unless the
/// nodes of all of them hold the same part of each axis.
SumGroup sum_group(const MeshShape& mesh, AxisSet axes);

}  // namespace ztrain
