#pragma once
// From a model graph and a mesh coordinate to the Programs of a job: load, train step, evaluation. Pure: any
// rank's Programs compile anywhere.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "kernel_interface/target.hpp"
#include "model/graph.hpp"
#include "model/tensor_plan.hpp"
#include "program/jobs/program_set.hpp"
#include "program/passes/expand.hpp"
#include "program/passes/offload.hpp"
#include "program/passes/optimizer.hpp"
#include "program/passes/shard.hpp"
#include "program/passes/unit_state.hpp"
#include "program/passes/units.hpp"

namespace ztrain::program {

class PipelineSteps;

/// Of a mesh with several stages.
struct PipelineOptions {
  std::vector<int> layers;  ///< of each stage; none: so that stages cost alike
  std::vector<int> begins;  ///< Stages::begins, where they are known (with_stages)
  /// How many turns before it is needed a rank begins to receive a message: how far others may run ahead.
  int receive_ahead = 1;
  LateWeights late_weights = LateWeights::all;
  std::shared_ptr<PipelineSteps> steps{};  ///< shared by the ranks that are compiled (with_stages)
};

/// Purpose of a job. An evaluation has no train step, and so neither gradients nor optimizer state.
enum class JobKind : std::uint8_t { training, evaluation };

struct JobSpec {
  MeshShape mesh;
  JobKind kind = JobKind::training;
  Target target = build_target();  ///< another one only where nothing is executed
  Strategy strategy;
  Precision precision;
  OptimizerSpec optimizer;
  int micro_batches = 1;
  Schedule schedule = find_schedule("sequential");
  PipelineOptions pipeline;
  Recompute recompute;
  UnitOptions units;
  ShardOptions sharding;
  model::TensorPlan tensor;     ///< of the model over the mesh's tensor axis
  bool overlap_tensor = false;  ///< its communication goes on beside products (passes/overlap.hpp)
  model::ContextMethod context = model::ContextMethod::gather;
  /// Room for rows that go to other ranks' experts, in even shares; 0: for all that may come.
  double expert_capacity = 0;
  int token_multiple = 1;   ///< the tokens that a rank of mesh.context has are one of it
  std::int64_t tokens = 0;  ///< of a micro-batch, without padding; 0: there is none
  OffloadOptions offload;
  Snapshots snapshots = Snapshots::none;
  bool saves_frozen = true;  ///< whether checkpoints hold the weights that are not trained too
  /// Compiles every micro-batch, also where those in the middle are alike (program/loops/repeat.hpp). So does
  /// a pass over Programs, which might treat one of them by itself.
  bool every_micro_batch = false;
  /// By what share more memory than is alive at once a step may need in which micro-batches in the middle
  /// stand for others; else it is compiled in full.
  double repeat_slack = 0.01;
  /// Proves what is compiled. false: of Programs that are looked at and never run.
  bool proven = true;
  /// Passes over the forward graph and over each Program before its dependencies are linked. The built-in
  /// passes come first; the order of the list is the order of application.
  std::vector<std::function<void(model::Graph&, const Coordinate&)>> graph_passes;
  std::vector<std::function<void(Program&)>> program_passes;

  /// Whether rows may have no room: steps then have a second Program (all_rows_name).
  bool may_overflow() const { return mesh[Axis::expert] > 1 && expert_capacity > 0; }
};

struct Job {
  model::Graph graph;  ///< after the graph passes
  Layout layout;
  JobTensors tensors;
  ProgramSet programs{};
  std::int64_t warm_up_steps = 0;  ///< optimizer steps that are those of warm_up()

  /// After initialisation or reading a checkpoint: derives all copies from the slices of the master state.
  const Program& load() const& { return programs.at(load_name); }
  /// One optimizer step.
  const Program& train() const& { return programs.at(train_name); }
  Program train() && { return std::move(programs.at(train_name)); }
  /// Whether the job has a train step.
  bool trains() const { return programs.find(train_name) != nullptr; }
  /// The same step with room for all rows that may go to other ranks' experts, and all blocks recomputed;
  /// null where the first has such room.
  const Program* all_rows() const& { return programs.find(all_rows_name); }
  /// The step of a warm-up, in which no copies sum up signs; null where they never do.
  const Program* warm_up() const& { return programs.find(warm_up_name); }
  /// Forward on micro-batch 0; leaves the ranks' loss sums in partials.
  const Program& evaluate() const& { return programs.at(evaluation_name); }
};

/// Compiles for one rank: links, plans and verifies every Program of it, and their successions. Throws Error
/// when a pass broke one.
Job compile(model::Graph graph, const JobSpec& spec, int rank);

/// Asked what a job needs at least, by tier: what it keeps between Programs, before anything is compiled, and
/// then also what is alive at once in its step, before that has places and proofs.
using MayFit = std::function<bool(const std::array<TierPlan, tier_count>& least)>;

/// The same; nothing, in a fraction of the time, where it may not.
std::optional<Job> compile_if(model::Graph graph, const JobSpec& spec, int rank, const MayFit& may_fit);

/// What compile_if asks first, without the rest: false where the job does not fit, by what it keeps and what
/// the first and the last micro-batch hold; under a pipeline, by what is alive at once in its step.
bool job_may_fit(model::Graph graph, const JobSpec& spec, int rank, const MayFit& may_fit);

/// Ranks whose Programs are the same but for the contents of attributes (which pieces of their shards they
/// speak for, which tokens they see) and for where their slice of a state begins that is kept whole. What
/// else compile() reads of a rank tells classes apart: its place in the pipeline, its part of a secondary
/// shard, and with weights that are computed with as codes its shard, which says whose scales it reads; and
/// with Snapshots::of_savers whether it saves any. A pass of the job's may look at any rank: then each is a
/// class of its own. In every class ranks ascend.
std::vector<std::vector<int>> rank_classes(const model::Graph& graph, const JobSpec& spec);

/// With the stages of a pipeline, which compile() otherwise finds for each rank anew. Throws Error where the
/// model cannot be cut so.
JobSpec with_stages(const model::Graph& graph, JobSpec spec);

/// Compiles one rank of each class and proves the joint graph of each Program over all ranks
/// (verify_no_deadlock).
void verify_job(const model::Graph& graph, const JobSpec& spec);
/// Told of what comes next: "class 3 of 16", "all ranks". Of classes by several threads.
using Tell = std::function<void(const std::string& what)>;
/// The same, where rank 0 is compiled already.
void verify_job(const model::Graph& graph, const JobSpec& spec, const Job& rank_0, const Tell& tell = {});

}  // namespace ztrain::program
