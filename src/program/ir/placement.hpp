#pragma once
// What a value is on the ranks of one axis of the mesh, and the ways in which an op may be split over them.
// The types are those of JAX's sharding in types and of spmd_types (E. Yang and others, 2026).

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/attributes.hpp"
#include "layout/mesh.hpp"

namespace ztrain::program {

/// replicated: the same on every rank, which may use it in its own way: its gradient is partial.
/// invariant: the same on every rank and used in the same way: its gradient is invariant.
/// split: each rank has its part of dim `dim`; so has the gradient.
/// partial: the value is the sum of what the ranks have; its gradient is replicated.
/// routed: each rank has the rows of tokens that go to its experts; so has the gradient.
/// to_members: slots in which a rank has rows of its tokens, on the way to or from the ranks with their
/// experts. from_members: slots in which a rank has rows of all members' tokens, on the way to or from its
/// experts. nothing: no rule says the placement of this output.
struct Placement {
  enum class Kind : std::uint8_t {
    replicated,
    invariant,
    split,
    partial,
    routed,
    to_members,
    from_members,
    nothing
  };
  Kind kind = Kind::invariant;
  int dim = -1;
  bool operator==(const Placement&) const = default;
  constexpr bool same() const { return kind == Kind::replicated || kind == Kind::invariant; }
};
inline constexpr Placement replicated{Placement::Kind::replicated, -1};
inline constexpr Placement invariant{Placement::Kind::invariant, -1};
inline constexpr Placement partial{Placement::Kind::partial, -1};
inline constexpr Placement routed{Placement::Kind::routed, -1};
inline constexpr Placement to_members{Placement::Kind::to_members, -1};
inline constexpr Placement from_members{Placement::Kind::from_members, -1};
inline constexpr Placement nothing{Placement::Kind::nothing, -1};
inline constexpr Placement split(int dim) {
  return {Placement::Kind::split, dim};
}
inline constexpr Placement by_rows = split(0), by_columns = split(1);

/// "replicated", "split(0)", ...
std::string to_string(const Placement& placement);

/// Placements of inputs and of outputs.
struct Placing {
  std::vector<Placement> inputs, outputs;
};

/// Placements of an op's operands, or groups of them, in order.
class Placements {
 public:
  constexpr Placements(std::initializer_list<Placement> list) {
    for (const Placement& p : list) at_[size_++] = p;
  }
  constexpr std::size_t size() const { return size_; }
  constexpr const Placement& operator[](std::size_t i) const { return at_[i]; }
  constexpr const Placement* begin() const { return at_.data(); }
  constexpr const Placement* end() const { return at_.data() + size_; }

 private:
  std::array<Placement, 10> at_{};
  std::size_t size_ = 0;
};

/// One way in which an op works without communication. An op without its optional last inputs uses the
/// first entries. A single output stands for all outputs. For an op that is no node, `replicated` only
/// means the same value on every rank. tests/mpi/ways.cpp proves them by numbers, but for a few that it
/// lists.
struct Way {
  Placements inputs, outputs;
  struct Condition {
    /// Whether constants and axes allow the way; null: always.
    bool (*of)(const Attributes&, AxisSet axes) = nullptr;
    AxisSet over = AxisSet::all();
    /// Axes allowed for a node, besides.
    AxisSet nodes_over = AxisSet::all();
    /// Whether an op's constants agree with this way; null: always. A node's are made to by `fit`, later.
    bool (*says)(const Attributes&) = nullptr;
  } when{};

  bool allows(const Attributes& a, AxisSet axes) const {
    return (axes.bits() & ~when.over.bits()) == 0 && (when.of == nullptr || when.of(a, axes));
  }
};

}  // namespace ztrain::program
