#pragma once
// What the compilers of training (compile.cpp, where these are defined) and of inference (inference.cpp)
// share.

#include <optional>
#include <string_view>
#include <vector>

#include "program/jobs/compile.hpp"

namespace ztrain::program {

/// What all Programs of a job start from: the persistent tensors, so that ids and addresses agree.
struct Base {
  model::Graph graph;
  Cut cut;
  JobTensors tensors;
  Program program;
};

/// Runs the graph passes, regroups the units, and adds the persistent tensors: the units' states, scalars and
/// the graph's inputs.
Base make_base(model::Graph graph, const JobSpec& spec, int rank, bool training);

Tensor persistent(std::string name, DType dtype, Shape shape, Category category);

/// The graph of the base run forward on micro-batch 0, after what `program` holds. results: of the graph.
Sharded forward_program(const Base& base, const JobSpec& spec, Program program,
                        std::vector<TensorId>& results);

/// The last passes: the job's own, dependencies, lifetimes, addresses, proof.
Program finish(Program program, const JobSpec& spec, std::string_view name);

/// What is there before any Program has run: what is initialised or read, and fed.
std::vector<TensorId> given(const Program& program, const JobTensors& tensors);

}  // namespace ztrain::program
