#pragma once
// What the compilers of training (compile.cpp, where these are defined) and of inference (inference.cpp)
// share.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "program/jobs/compile.hpp"
#include "program/passes/stages.hpp"
#include "program/schedules/pipeline_steps.hpp"

namespace ztrain::program {

/// What all Programs of a job start from: the persistent tensors, so that ids and addresses agree.
struct Base {
  model::Graph graph;
  Stages stages;  ///< none where the mesh has no pipeline
  Cut cut;
  JobTensors tensors;
  Program program;
  std::shared_ptr<PipelineSteps> steps{};
};

/// A graph of inference.
struct CachedGraph {
  std::int64_t capacity = 0;  ///< tokens that its cache holds
  std::string inputs;         ///< before the names of its inputs: each graph of a job has its own
};

/// Runs the graph passes, regroups the units, and adds the persistent tensors: the units' states, scalars and
/// the graph's inputs. cache: null in training.
Base make_base(model::Graph graph, const JobSpec& spec, int rank, const CachedGraph* cache = nullptr);

/// What is there before any Program has run: what is initialised or read, and fed.
std::vector<TensorId> given(const Program& program, const JobTensors& tensors);

}  // namespace ztrain::program
