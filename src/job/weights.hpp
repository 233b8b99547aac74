#pragma once
// Initial weights, and this rank's slices of the state as checkpoints see them.

#include <functional>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/save_plan.hpp"
#include "engine/job_memory.hpp"
#include "job/codes/quantized_weights.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"
#include "program/jobs/compile.hpp"

namespace ztrain::job {

/// Writes this rank's slice of every master weight: drawn by (seed, parameter name, logical index), so the
/// model is the same whatever the mesh. Moments become zero. Run the job's load Program afterwards.
void initialize_weights(const program::Program& program, const program::JobTensors& tensors,
                        const Layout& layout, const model::Graph& graph, const engine::JobMemory& memory,
                        kernels::Exec& exec, std::uint64_t seed);

/// Draws those parameters alone that `wanted` says, and leaves all else as it is.
void draw_weights(const program::Program& program, const program::JobTensors& tensors, const Layout& layout,
                  const model::Graph& graph, const engine::JobMemory& memory, kernels::Exec& exec,
                  std::uint64_t seed, const std::function<bool(const model::Parameter&)>& wanted);

/// Writes this rank's slices of the parameters that start as norms of the rows of a weight (Init::row_norms).
/// read: gives the weights, which are rounded to the type that the model computes with.
void write_row_norms(const model::Graph& graph, const checkpoint::Place& place,
                     std::span<const checkpoint::StateShard> shards, const ReadElements& read);

/// Draws elements of a parameter from `begin` on, as they are drawn into the slices.
void draw_elements(const model::Parameter& parameter, std::int64_t begin, Vector<float> to,
                   kernels::Exec& exec, std::uint64_t seed);

/// Draws the parameters that are not trained, as initialize_weights does, and leaves all else as it is.
void draw_frozen(const program::Program& program, const program::JobTensors& tensors, const Layout& layout,
                 const model::Graph& graph, const engine::JobMemory& memory, kernels::Exec& exec,
                 std::uint64_t seed);

/// Makes this rank's slices of the moments zero, for a run whose weights are not drawn.
void zero_moments(const program::Program& program, const program::JobTensors& tensors,
                  const engine::JobMemory& memory, kernels::Exec& exec);

/// Makes this rank's slices of the averages equal to its slices of the weights. No work may be under way on
/// either.
void start_averages(const program::Program& program, const program::JobTensors& tensors,
                    const engine::JobMemory& memory);

/// The forms of a rank's states that are saved, which a save needs, without their memory.
std::vector<checkpoint::StateForm> state_forms(const program::Program& program,
                                               const program::JobTensors& tensors);

/// This rank's slices: weights, and with optimizer the moments.
std::vector<checkpoint::StateShard> state_shards(const program::Program& program,
                                                 const program::JobTensors& tensors,
                                                 const engine::JobMemory& memory, bool optimizer);

/// Returns those of them that checkpoints hold (UnitState::saved).
std::vector<checkpoint::StateShard> saved_of(std::vector<checkpoint::StateShard> shards,
                                             const program::JobTensors& tensors);

/// Copies them into the room that the job has for that, and gives the copies of those that are saved, which
/// the CPU reaches. Where a rank has no such room, the shards are the slices themselves, which it does not
/// save.
std::vector<checkpoint::StateShard> copied_shards(const program::Program& program,
                                                  const program::JobTensors& tensors,
                                                  const engine::JobMemory& memory);

/// Copies them back into the slices.
void restore_shards(const program::Program& program, const program::JobTensors& tensors,
                    const engine::JobMemory& memory);

checkpoint::Place place_of(const program::Program& program, const Layout& layout);

}  // namespace ztrain::job
