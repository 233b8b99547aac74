#pragma once
// What the compilers of training (compile.cpp, where these are defined) and of inference (inference.cpp)
// share.

#include <string>
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

/// What is there before any Program has run: what is initialised or read, and fed.
std::vector<TensorId> given(const Program& program, const JobTensors& tensors);

}  // namespace ztrain::program
