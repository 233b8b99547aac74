#pragma once
// Every pass between a deck and the Programs of a job, in the order in which they run: a row each in
// pass_list.cpp. What a pass does stands with it; a row says when it runs and what it is handed.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/family.hpp"
#include "program/jobs/job_base.hpp"
#include "program/loops/repeat.hpp"
#include "program/passes/place.hpp"
#include "program/passes/stages.hpp"
#include "program/schedules/middle.hpp"

namespace ztrain::program {

/// The graph of a deck's model: its family's, after the passes that the deck asks for. What is trained and
/// what is generated from a checkpoint is this.
model::Graph model_graph(const config::Deck& deck, const model::Request& request);

/// A graph on its way to one rank, and what the passes found out about it.
struct RankGraph {
  model::Graph graph;
  const JobSpec& spec;
  Coordinate at;
  /// Null in training. Otherwise the graph's attention is to a cache, of this rank's heads.
  const CachedGraph* cache = nullptr;
  Placed placed{};
  Stages stages{};  ///< of a graph with several; otherwise none
  bool training() const { return cache == nullptr; }
};

/// The passes over the graph of one rank: its parts, its units.
void run_graph_passes(RankGraph& work);

/// The kinds of Programs that passes tell apart.
enum class ProgramKind : std::uint8_t { load, train, evaluate, infer };

/// A Program in the making.
struct Making {
  const Base& base;
  const JobSpec& spec;
  ProgramKind kind;
  int micro_batches = 1;  ///< that are expanded
  /// Says what stands for the step's micro-batches if these are fewer (program/loops/repeat.hpp).
  std::optional<Middle> middle{};
  BodyBegin body{};             ///< its first op, once expanded
  TensorId logits = no_tensor;  ///< of infer: where they go
  Expanded step{};              ///< its Program is the one that is made
  std::vector<ReducedGradient> gradients{};
  bool given_up = false;  ///< the body cannot stand for all its iterations

  bool repeats() const { return middle.has_value(); }
  Program& program() { return step.program; }
};

/// Of the persistent tensors so far.
Making start(const Base& base, const JobSpec& spec, ProgramKind kind, std::string_view name);

/// From the graph, or from the persistent tensors, to the ops that do it.
void run_step_passes(Making& making);
/// Dependencies, lifetimes, addresses, and the proof; stops where `given_up` is set.
void run_final_passes(Making& making);
/// Both.
Program make(Making making);

}  // namespace ztrain::program
