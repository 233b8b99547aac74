#include "layout/sum_group.hpp"

#include <algorithm>

namespace ztrain {

SumGroup sum_group(const MeshShape& mesh, AxisSet axes) {
  const int ranks = mesh.size(axes), per_node = mesh.per_node;
  if (per_node == 0) return ranks;
  int on_node = 1, neighbours = 1;  // neighbours: ranks that differ in the axes seen so far alone
  for (int i = axis_count - 1; i >= 0; --i) {
    const auto axis = static_cast<Axis>(i);
    if (axes.contains_outer(axis)) return ranks;
    const int degree = mesh[axis], members = mesh.factor(axes, axis);
    if (per_node % neighbours != 0) return ranks;
    const int of_axis = std::min(degree, per_node / neighbours);  // neighbours along the axis on one node
    if (degree % of_axis != 0) return ranks;
    if (std::max(members, of_axis) % std::min(members, of_axis) != 0) return ranks;
    on_node *= std::min(members, of_axis);
    if (of_axis < degree) break;
    neighbours *= degree;
  }
  return {ranks, on_node};
}

}  // namespace ztrain
