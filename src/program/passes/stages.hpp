#pragma once
// Cuts a model into the stages of a pipeline, and leaves of a rank's graph what is of its own stages, with
// the messages to and from their neighbours. What comes after knows of stages only that some nodes are
// messages.

#include <utility>
#include <vector>

#include "base/shape.hpp"
#include "kernel_interface/target.hpp"
#include "layout/mesh.hpp"
#include "model/graph.hpp"
#include "program/passes/expand.hpp"
#include "program/passes/place.hpp"
#include "program/schedules/messages.hpp"

namespace ztrain::program {

/// By block: FLOPs of its forward, recomputation and backward.
std::vector<double> block_costs(const model::Graph& graph, const Recompute& recompute, Target target);

/// By block: bytes of the parameters that it computes with, which is what a token of generation costs.
std::vector<double> block_weights(const model::Graph& graph);

/// By stage: the first of its blocks; then their number. No stage costs more than it must, and then the
/// stages are as even as can be. Throws Error where there are fewer blocks than stages.
std::vector<int> cut_evenly(const std::vector<double>& costs, int stages);

/// The same where it is said how many layers each stage has: all blocks but the first and the last, which go
/// with their neighbours. Throws Error where their sum is not that of the model.
std::vector<int> cut_by_layers(const std::vector<int>& layers, int blocks);

/// A model in stages.
struct Stages {
  StageMap map;
  std::vector<int> begins;  ///< by stage: its first block; then the number of blocks

  /// Blocks [first, second) of a stage.
  std::pair<int, int> blocks(int stage) const { return {begins[at(stage)], begins[at(stage) + 1]}; }
};

/// Leaves the nodes of the rank's stages, with FromStage and ToStage at their edges, and marks parameters
/// that none of them uses (model::Parameter::elsewhere). spread is of no axis in generation. What the graph
/// reports and another rank has is left out.
void keep_stages(model::Graph& graph, const Stages& stages, const Coordinate& at, const Spreading& spread);

/// Of a step between the stages: moves receives, which stand where they are needed, to the turns before which
/// they begin, and lets what is sent live until its receiver is known to be there, so that ranks do not wait
/// for each other (program/schedules/messages.hpp). turn_begins: by turn, its first op. Returns the same of
/// what has become of them.
std::vector<std::size_t> place_messages(Program& program, const std::vector<std::size_t>& turn_begins,
                                        const StageMap& map, int rank, const MessagePlan& plan);

}  // namespace ztrain::program
