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
  int on_node = 1;  ///< Divides ranks. Equals ranks if the group is on one node or has no even split.

  /// A group on one node.
  constexpr SumGroup(int members) : ranks(members), on_node(members) {}
  constexpr SumGroup(int members, int members_on_node) : ranks(members), on_node(members_on_node) {}

  constexpr int nodes() const { return ranks / on_node; }
  /// Returns whether sums of elements of type `in` take two steps. With two members on a node the fp32
  /// partial sums are as many bytes as the contributions, so that two steps would save nothing.
  constexpr bool by_node(DType in) const { return size_of(in) <= 2 && on_node > 2 && on_node < ranks; }
};

/// Returns the group over `axes` that `at` is in, under MeshShape::per_node.
SumGroup sum_group(const Coordinate& at, AxisSet axes);

}  // namespace ztrain
