#include "layout/sum_group.hpp"

#include <algorithm>

namespace ztrain {

SumGroup sum_group(const Coordinate& at, AxisSet axes) {
  const int ranks = at.mesh().size(axes), per_node = at.mesh().per_node;
  if (per_node == 0 || ranks <= 2 || at.mesh().ranks() <= per_node) return ranks;
  const std::vector<int> group = at.group(axes);
  const auto node = [&](int member) { return group[static_cast<std::size_t>(member)] / per_node; };
  int on_node = 1;
  while (on_node < ranks && node(on_node) == node(0)) ++on_node;
  if (ranks % on_node != 0) return ranks;
  for (int member = on_node; member < ranks; ++member) {
    const bool first = member % on_node == 0;
    if ((node(member) != node(member - 1)) != first) return ranks;
  }
  return {ranks, on_node};
}

}  // namespace ztrain
