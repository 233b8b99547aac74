#pragma once
// Unrolls a model's forward graph into the compute ops of one optimizer step (or of one evaluation): forward,
// recompute and backward of each micro-batch. Parameters and their gradients are still names without storage;
// shard.hpp gives them places.

#include <vector>

#include "model/graph.hpp"
#include "program/program.hpp"

namespace ztrain::program {

enum class Recompute : std::uint8_t {
  none,
  full  ///< of a unit only its inputs are kept: backward runs its forward again (Chen et al., 2016)
};

struct ExpandOptions {
  int micro_batches = 1;
  bool training = true;  ///< false: forward alone
  Recompute recompute = Recompute::none;
  DType gradients = DType::f32;
  /// One gradient tensor per parameter, to which every micro-batch adds; otherwise one per micro-batch.
  bool accumulate_locally = false;
};

struct Expanded {
  Program program;
  std::vector<TensorId> parameters;              ///< placeholder by parameter
  std::vector<std::vector<TensorId>> gradients;  ///< placeholder by [micro][parameter]; empty unless training
  std::vector<TensorId> results;                 ///< of the graph, by micro
};

/// base: a Program that holds the persistent tensors; inputs are found in it by name, "<input>.<micro>".
Expanded expand(Program base, const model::Graph& graph, const ExpandOptions& options);

/// The name of a graph input's tensor in micro-batch m.
std::string input_name(const std::string& input, int micro);

/// Drops compute ops whose results nothing needs. keep: results that the caller reads.
void drop_dead_ops(Program& program, const std::vector<TensorId>& keep);

/// Lets an op write its output over an input that is not read again (rope, residual adds): less memory and
/// traffic.
void overlay_in_place(Program& program);

}  // namespace ztrain::program
