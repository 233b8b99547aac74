#pragma once
// What a value is on the ranks of one axis of the mesh, and what an op makes of it. The types are those of
// JAX's sharding in types and of spmd_types (E. Yang and others, 2026).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/mesh.hpp"

namespace ztrain::program {

/// replicated: the same on every rank, which may use it in its own way: its gradient is partial.
/// invariant: the same on every rank and used in the same way: its gradient is invariant.
/// split: each rank has its part of dim `dim`; so has the gradient.
/// partial: the value is the sum of what the ranks have; its gradient is replicated.
struct Placement {
  enum class Kind : std::uint8_t { replicated, invariant, split, partial };
  Kind kind = Kind::invariant;
  int dim = -1;
  bool operator==(const Placement&) const = default;
};
inline constexpr Placement replicated{Placement::Kind::replicated, -1};
inline constexpr Placement invariant{Placement::Kind::invariant, -1};
inline constexpr Placement partial{Placement::Kind::partial, -1};
inline constexpr Placement split(int dim) {
  return {Placement::Kind::split, dim};
}

/// "replicated", "split(0)", ...
std::string to_string(const Placement& placement);

/// One way in which an op works without communication: what it takes and what comes out.
struct Placing {
  std::vector<Placement> inputs, outputs;
};

/// From a letter for each operand, R, I, P or the number of a dim: "R0R>1" is a product of a replicated
/// matrix with rows of a weight and an added replicated vector. A way of an op with fewer inputs (without its
/// optional last ones) is the beginning of it. Ways are separated by spaces. Throws Error on anything else.
std::vector<Placing> parse_placings(std::string_view text);

}  // namespace ztrain::program
