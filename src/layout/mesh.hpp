#pragma once
// The device mesh as arithmetic: named axes, ranks in row-major order, outermost axis first. Links no MPI.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/axes.hpp"

namespace ztrain {

struct MeshShape;

/// "shard", "shard*context", "shard_inner", or "none".
std::string to_string(AxisSet axes);

/// The same without `expert` if that axis has one rank, for people and for metrics.
std::string to_string(AxisSet axes, const MeshShape& mesh);

/// One for each axis.
constexpr std::array<int, axis_count> ones_by_axis() {
  std::array<int, axis_count> ones{};
  for (int& one : ones) one = 1;
  return ones;
}

/// Degrees of the axes.
struct MeshShape {
  std::array<int, axis_count> degree = ones_by_axis();
  /// Divides the degree of its axis, which is cut into groups of so many neighbours.
  std::array<int, axis_count> inner = ones_by_axis();
  /// Ranks of a node: rank r is on node r / per_node. 0: all are on one. Sums depend on it (sum_group.hpp).
  int per_node = 0;

  int inner_of(Axis axis) const { return inner[static_cast<std::size_t>(axis)]; }
  int& inner_of(Axis axis) { return inner[static_cast<std::size_t>(axis)]; }
  int operator[](Axis axis) const { return degree[static_cast<std::size_t>(axis)]; }
  int& operator[](Axis axis) { return degree[static_cast<std::size_t>(axis)]; }
  int ranks() const;
  /// Product of the degrees of these axes.
  int size(AxisSet axes) const;
  /// Returns the part of size() that is of `axis`: its degree, its inner or outer factor, or 1.
  int factor(AxisSet axes, Axis axis) const;
  /// "1 x 1 x 4 x 1 x 1 (pipeline x replicate x shard x context x tensor)"
  std::string describe() const;
  bool operator==(const MeshShape&) const = default;
};

/// Position of one rank in a mesh.
class Coordinate {
 public:
  /// Throws Error unless 0 <= rank < mesh.ranks().
  Coordinate(const MeshShape& mesh, int rank);

  const MeshShape& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  int operator[](Axis axis) const { return position_[static_cast<std::size_t>(axis)]; }

  /// Index of this rank within its group over axes: row-major over the contained axes, outermost first.
  int index_in(AxisSet axes) const;
  /// Global ranks of the group over axes that contains this rank, in index order.
  std::vector<int> group(AxisSet axes) const;
  /// Which of the groups over axes this is: the rank of its first member.
  int group_id(AxisSet axes) const;

 private:
  MeshShape mesh_;
  int rank_;
  std::array<int, axis_count> position_{};
};

/// Axes of which some group has ranks on several nodes. node_of: by rank.
AxisSet axes_across_nodes(const MeshShape& mesh, const std::function<int(int)>& node_of);

/// For people: "shard crosses nodes", with a warning where the tensor axis does; "" where none does.
std::string note_on_nodes(AxisSet across);

}  // namespace ztrain
