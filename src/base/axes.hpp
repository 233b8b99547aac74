#pragma once
// The axes of the mesh by name, sets of them, and what a cut between shards leaves whole: families and
// optimizers say it of parameters; layout, checkpoints and passes read it.

#include <cstdint>
#include <iterator>
#include <string_view>

namespace ztrain {

enum class Axis : std::uint8_t { pipeline, replicate, shard, expert, ring, context, tensor };

/// Says what the ranks of an axis divide among them. Which inputs are split, where state is cut and over what
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
    {.name = "expert", .deals_sequences = true, .cuts_state = true, .follows = true},
    {.name = "ring", .cuts_tokens = true, .cuts_state = true, .follows = true},
    {.name = "context", .cuts_tokens = true, .cuts_state = true},
    {.name = "tensor"},
};
inline constexpr int axis_count = static_cast<int>(std::size(axis_table));
constexpr std::string_view name_of(Axis axis) {
  return axis_table[static_cast<int>(axis)].name;
}

/// A product of axes, as a bit mask. Ranks that differ only in these axes form one group. Beside whole axes
/// it may hold inner factors of axes, groups of MeshShape::inner neighbours along them, and outer factors:
/// ranks with the same place in these groups.
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
  /// The inner or the outer factor of an axis; neither goes with the whole axis.
  static constexpr AxisSet inner(Axis axis) { return from_bits(1u << (axis_count + static_cast<int>(axis))); }
  static constexpr AxisSet outer(Axis axis) {
    return from_bits(1u << (2 * axis_count + static_cast<int>(axis)));
  }

  constexpr AxisSet operator|(AxisSet other) const { return from_bits(bits_ | other.bits_); }
  constexpr AxisSet without(AxisSet other) const { return from_bits(bits_ & ~other.bits_); }
  constexpr bool contains(Axis axis) const { return (bits_ >> static_cast<int>(axis)) & 1u; }
  constexpr bool contains_inner(Axis axis) const {
    return (bits_ >> (axis_count + static_cast<int>(axis))) & 1u;
  }
  constexpr bool contains_outer(Axis axis) const {
    return (bits_ >> (2 * axis_count + static_cast<int>(axis))) & 1u;
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  static_assert(3 * axis_count <= 31, "one bit for each axis, and one for each of its factors, in an int");
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
/// The axes over which shards may be cut.
inline constexpr AxisSet state_axes = axes_that(&AxisRow::cuts_state);

/// Says what a cut between shards leaves whole, from fine to coarse. element and block may be cut on any
/// multiple of the quantum, so the two are cut alike. A row is of the last dim, a matrix of the last two. A
/// parameter of one dim is always cut by blocks.
enum class Whole : std::uint8_t { element, block, row, matrix };

}  // namespace ztrain
