#pragma once
// The device mesh as arithmetic: named axes, ranks in row-major order, outermost axis first. Links no MPI.

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace ztrain {

enum class Axis : std::uint8_t { pipeline, replicate, shard, ring, context, tensor };

/// What the ranks of an axis divide among them. Which inputs are split, where state is cut and over what
/// gradients are summed follows from this.
struct AxisRow {
  std::string_view name;
  bool deals_sequences = false;  ///< each rank has other sequences
  bool cuts_tokens = false;      ///< each has its part of the tokens of a sequence
  bool cuts_state = false;       ///< each keeps its shard of what is sharded
  bool follows = false;          ///< from other settings: people see it only where it is more than 1
};
/// In the order of Axis: outermost first. One that divides none of these divides the model.
inline constexpr AxisRow axis_table[] = {
    {.name = "pipeline"},
    {.name = "replicate", .deals_sequences = true},
    {.name = "shard", .deals_sequences = true, .cuts_state = true},
    {.name = "ring", .cuts_tokens = true, .cuts_state = true, .follows = true},
    {.name = "context", .cuts_tokens = true, .cuts_state = true},
    {.name = "tensor"},
};
inline constexpr int axis_count = static_cast<int>(std::size(axis_table));
constexpr std::string_view name_of(Axis axis) {
  return axis_table[static_cast<int>(axis)].name;
}

/// A product of axes, as a bit mask. Ranks that differ only in these axes form one group. Beside whole axes
/// it may hold inner factors of axes: groups of MeshShape::inner neighbours along them.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(1u << static_cast<int>(axis)) {}
  static constexpr AxisSet from_bits(std::uint32_t bits) {
    AxisSet s;
    s.bits_ = bits;
    return s;
  }
  static constexpr AxisSet all() { return from_bits((1u << axis_count) - 1); }
  /// The inner factor of an axis; it does not go with the whole axis.
  static constexpr AxisSet inner(Axis axis) { return from_bits(1u << (axis_count + static_cast<int>(axis))); }

  constexpr AxisSet operator|(AxisSet other) const { return from_bits(bits_ | other.bits_); }
  constexpr bool contains(Axis axis) const { return (bits_ >> static_cast<int>(axis)) & 1u; }
  constexpr bool contains_inner(Axis axis) const {
    return (bits_ >> (axis_count + static_cast<int>(axis))) & 1u;
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  static_assert(2 * axis_count <= 31, "one bit for each axis, one for its inner factor, in an int");
  std::uint32_t bits_ = 0;
};
constexpr AxisSet operator|(Axis a, Axis b) {
  return AxisSet(a) | AxisSet(b);
}

/// The axes whose row says so.
constexpr AxisSet axes_that(bool AxisRow::*does) {
  AxisSet axes;
  for (int i = 0; i < axis_count; ++i)
    if (axis_table[i].*does) axes = axes | static_cast<Axis>(i);
  return axes;
}
/// The axes over which whole sequences are dealt: what belongs together there is on one rank.
inline constexpr AxisSet sequence_axes = axes_that(&AxisRow::deals_sequences);
/// The axes over which the tokens of a micro-batch are split.
inline constexpr AxisSet context_axes = axes_that(&AxisRow::cuts_tokens);
/// The axes over which the tokens of a step are split.
inline constexpr AxisSet token_axes = sequence_axes | context_axes;
/// The axes over which shards are cut.
inline constexpr AxisSet state_axes = axes_that(&AxisRow::cuts_state);

/// "shard", "shard*context", "shard_inner", or "none".
std::string to_string(AxisSet axes);

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
  /// Of `axis` alone: its degree, its inner factor, or 1.
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
