#pragma once
// Which parameters are gathered, reduced and stepped together.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh.hpp"
#include "model/graph.hpp"

namespace ztrain::program {

enum class UnitGranularity : std::uint8_t {
  block,   ///< one per block of the model
  size,    ///< neighbouring blocks are joined until a unit has min_parameters (as FSDP's size-based policy)
  model,   ///< one in all
  pattern  ///< each module that matches a pattern is a unit; what is left of its block is another
};

struct UnitOptions {
  UnitGranularity granularity = UnitGranularity::block;
  std::int64_t min_parameters = 0;    ///< for size
  std::vector<std::string> patterns;  ///< for pattern: globs of module names, "model.layers.*.mlp"
  /// Parameters with fewer elements are kept whole, all in one unit (DeepSpeed's persistence threshold).
  /// Joined ones (model::Parameter::joined) count as one, and go where the first of them goes.
  std::int64_t persistence_threshold = 0;
};

/// Regroups the units that a family emitted, one per block. Where only some parameters of one are trainable
/// it becomes two, gathered together. The same happens where only some are computed with as 8-bit codes, have
/// their state sharded over other axes (model::Parameter::state_over), or have gradients that are summed over
/// other axes (summed_over, by parameter, of Placed; empty: all over the same). All constants are one unit.
/// Throws Error naming a pattern that matches nothing.
void group_parameters(model::Graph& graph, const UnitOptions& options,
                      const std::vector<AxisSet>& summed_over = {});

}  // namespace ztrain::program
