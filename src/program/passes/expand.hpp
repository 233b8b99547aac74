#pragma once
// Unrolls a model's forward graph into the compute ops of one optimizer step (or of one evaluation): forward,
// recompute and backward of each micro-batch, in the order of a schedule. Parameters and their gradients are
// still names without storage; shard.hpp gives them places.

#include <utility>
#include <vector>

#include "model/graph.hpp"
#include "program/ir/program.hpp"
#include "program/passes/recompute.hpp"
#include "program/schedules/halves.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::program {

struct ExpandOptions {
  /// The order of the step; of its micro-batches these may be a part.
  std::vector<Turn> turns{{TurnKind::forward, 0, 0}};
  /// By chunk: its blocks [first, second). None: one chunk of all.
  std::vector<std::pair<int, int>> chunks;
  int micro_batches = 1;  ///< of the step
  bool training = true;   ///< false: forward alone
  Recompute recompute;
  LateWeights late_weights = LateWeights::all;
  DType gradients = DType::f32;
  /// By parameter: every micro-batch adds to one gradient; otherwise each has one. None: each has one of all.
  std::vector<bool> accumulate_locally;
};

struct Expanded {
  Program program;
  std::vector<TensorId> parameters;  ///< placeholder by parameter
  /// Placeholders by [set][parameter]; no set unless training.
  std::vector<std::vector<TensorId>> gradients;
  /// Values that the graph reports (model::Graph::reported): in training a tensor each, with a row for each
  /// micro-batch of the step; otherwise without the sums of routers.
  std::vector<TensorId> results;
  std::vector<std::size_t> turn_begins;  ///< by turn: its first op
};

/// base: a Program that holds the persistent tensors; inputs are found in it by name, "<input>.<micro>", and
/// state by its own.
Expanded expand(Program base, const model::Graph& graph, const ExpandOptions& options);

/// The name of a graph input's tensor in micro-batch m.
std::string input_name(const std::string& input, int micro);

/// Drops compute ops whose results nothing needs. keep: results that the caller reads.
void drop_dead_ops(Program& program, const std::vector<TensorId>& keep);

/// Lets an op write its output over an input that is not read again (rope, residual adds): less memory and
/// traffic. Replaces each of `results`, which the caller reads, by the tensor that holds it afterwards.
void overlay_in_place(Program& program, std::vector<TensorId>& results);

}  // namespace ztrain::program
