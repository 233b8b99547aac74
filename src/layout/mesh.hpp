#pragma once
// The device mesh as arithmetic: five named axes, ranks in row-major order, outermost axis first. Links no
// MPI.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ztrain {

enum class Axis : std::uint8_t { pipeline, replicate, shard, context, tensor };
inline constexpr int axis_count = 5;
std::string_view name_of(Axis axis);

/// A product of axes, as a bit mask. Ranks that differ only in these axes form one group. Beside whole axes
/// it may hold the inner factor of the shard axis: groups of MeshShape::shard_inner neighbours along it.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(static_cast<std::uint8_t>(1u << static_cast<int>(axis))) {}
  static constexpr AxisSet all() {
    AxisSet s;
    s.bits_ = (1u << axis_count) - 1;
    return s;
  }
  constexpr AxisSet operator|(AxisSet other) const {
    AxisSet s;
    s.bits_ = bits_ | other.bits_;
    return s;
  }
  /// The inner factor of the shard axis; it does not go with the whole axis.
  static constexpr AxisSet shard_inner() {
    AxisSet s;
    s.bits_ = 1u << axis_count;
    return s;
  }
  static constexpr AxisSet from_bits(std::uint8_t bits) {
    AxisSet s;
    s.bits_ = bits;
    return s;
  }
  constexpr bool has_shard_inner() const { return (bits_ >> axis_count) & 1u; }
  constexpr bool contains(Axis axis) const { return (bits_ >> static_cast<int>(axis)) & 1u; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr std::uint8_t bits() const { return bits_; }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  std::uint8_t bits_ = 0;
};
constexpr AxisSet operator|(Axis a, Axis b) {
  return AxisSet(a) | AxisSet(b);
}

/// "shard", "shard*context", "shard_inner", or "none".
std::string to_string(AxisSet axes);

/// Degrees of the five axes.
struct MeshShape {
  std::array<int, axis_count> degree{1, 1, 1, 1, 1};
  int shard_inner =
      1;  ///< divides the degree of the shard axis: it is cut into groups of this many neighbours

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

}  // namespace ztrain
