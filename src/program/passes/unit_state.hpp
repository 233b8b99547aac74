#pragma once
// The persistent tensors of a job: what each rank keeps between Programs.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "config/strategy.hpp"
#include "layout/layout.hpp"
#include "model/graph.hpp"
#include "optim/optimizer.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

using config::find_strategy;
using config::strategies;
using config::Strategy;

/// Element types of what is kept and exchanged.
struct Precision {
  DType parameters = DType::f32;  ///< computed with, gathered
  DType gradients = DType::f32;   ///< gradient buffers and accumulators
  /// Between ranks the narrower of gradients and reduce travels; sums are formed in fp32 and kept in the
  /// wider of the two, those of fp16 gradients in fp32.
  DType reduce = DType::f32;
  DType master = DType::f32;  ///< what the optimizer steps
  DType moments = DType::f32;
};

/// Where the shard group's state of one unit lives on this rank. "slice" tensors are this rank's shard: they
/// are what is checkpointed and initialised. Where a state is replicated, slice is a view of whole; where it
/// is sharded, whole is the same tensor as slice.
struct State {
  TensorId slice = no_tensor;
  TensorId whole = no_tensor;
};

struct UnitState {
  State parameters;
  /// Parameters as forward and backward read them, or their 8-bit codes (program/passes/weight_codes.hpp).
  State computed;
  State master;      ///< same tensors as parameters when the dtypes are equal, or the unit is frozen
  std::string rule;  ///< row of the optimizer table that steps the unit, or ""
  std::vector<optim::StateInfo> states;  ///< what the rule keeps; none for a frozen unit
  std::vector<State> optimizer;          ///< in the order of `states`
  /// Room in the host's memory for copies of slices, which are saved while training goes on, or to which it
  /// goes back: by 0 that of `master`, by i + 1 that of optimizer[i]. None where this rank does neither.
  std::map<std::size_t, TensorId> snapshot;
  /// First and count of the flat elements that this rank's optimizer steps: its shard, or all.
  std::int64_t step_begin = 0;
  std::int64_t step_count = 0;
  bool separate_master = false;
  bool quantized = false;  ///< its parameters are codes of 4 or 8 bits
  bool trained = true;     ///< false: no step changes it
  bool saved = true;       ///< whether checkpoints hold it; if not, its weights are read again

  /// Index of the state that is what sums of signs have rounded away; -1: none.
  int error() const {
    for (std::size_t i = 0; i < states.size(); ++i)
      if (states[i].of_each_copy) return static_cast<int>(i);
    return -1;
  }
  /// Whether each copy of the slice with this number in `snapshot` has values of its own.
  bool is_of_each_copy(std::size_t number) const { return number > 0 && states[number - 1].of_each_copy; }
  /// Whether the last of `states` is the moving average of the parameters.
  bool averaged() const { return !states.empty() && states.back().name == optim::average_state; }
};

/// How a job is cut for one rank.
struct Cut {
  Coordinate at;
  Layout layout;
  Strategy strategy;
  Precision precision;
  std::vector<model::Unit> units;
  std::vector<model::Rows> computed{};  ///< by parameter: elements of its segment that are computed with

  bool is_cut(int unit) const { return layout.unit(unit).shards > 1; }
  /// Whether what is computed with of a unit is in shards between steps.
  bool shards_parameters(int unit) const {
    return strategy.parameters_sharded && !units[ztrain::at(unit)].kept_whole;
  }
  bool coded(int unit) const { return units[ztrain::at(unit)].coded; }
  /// The items that stand for so many elements of a unit's flat range, whole quanta: elements, or the bytes
  /// of their codes.
  std::int64_t items(int unit, std::int64_t elements) const {
    const WeightForm& form = units[ztrain::at(unit)].form;
    return form.any() ? form.bytes(elements) : elements;
  }
};

/// The axes over which a unit's gradient is a sum beside those over which it is cut: ranks that differ in
/// these alone have copies of its shards.
AxisSet copying_axes(const Cut& cut, int unit);
/// Those of the copying axes over which a rule that sums up signs does so: they divide tokens. None of a unit
/// that two stages of a pipeline share, as each of these has a sum.
AxisSet sign_axes(const Cut& cut, int unit);

/// The axes of groups of neighbours among the ranks that share what is sharded over these axes.
inline AxisSet inner_axes(AxisSet shard_axes) {
  return shard_axes.contains(Axis::shard) ? shard_axes.without(Axis::shard) | AxisSet::inner(Axis::shard)
                                          : shard_axes;
}

/// Bytes [begin, begin + count) of a unit's codes.
struct Quanta {
  std::int64_t begin = 0, count = 0;
};

/// The quanta in which these elements of a parameter lie.
Quanta quanta_of(const WeightForm& form, const Segment& parameter, const model::Rows& elements);

/// Adds the state tensors of every unit to program. optimizer: the rule of trained units; if it
/// has `others`, of those with matrices alone. null: no unit is stepped.
std::vector<UnitState> add_unit_states(Program& program, const Cut& cut, const optim::Info* optimizer,
                                       const optim::Settings& settings);

/// Whose ranks have room for a copy of their state (UnitState::snapshot).
enum class Snapshots : std::uint8_t {
  none,
  of_savers,  ///< those that own what they hold, or some state of it: it is saved
  of_all      ///< a run goes back to it
};

/// Gives the units that are copied their UnitState::snapshot. With of_savers, the rank has that of a unit's
/// whole state if it owns what it holds, else of states of each copy.
void add_snapshots(Program& program, std::vector<UnitState>& units, Snapshots snapshots);

/// Persistent tensors beside the units' states. The ids hold in every Program of the job.
/// Reports of a step and an evaluation on pairs of answers; none: the loss is another.
struct PreferenceTensors {
  TensorId report = no_tensor;  ///< PreferenceSums over all ranks
  TensorId logps = no_tensor;   ///< fp64 [slots] of this rank's last micro-batch of an evaluation
};

/// What a step tells of a loss against a teacher, and an evaluation of a teacher; none: nothing.
struct TeacherTensors {
  TensorId report = no_tensor;  ///< fp64 [2], model::TeacherValues over all ranks
  /// int32 and fp32 [T, k] of this rank's micro-batch, on ranks with the head.
  TensorId words = no_tensor, log_likelihoods = no_tensor;
};

struct JobTensors {
  std::vector<UnitState> units;
  std::vector<TensorId> scales;  ///< by parameter: of the codes that are computed with, or none
  /// By parameter: what else belongs to a weight in 4 or 8 bits, or none.
  std::vector<TensorId> statistics;
  TensorId scalars = no_tensor;   ///< StepScalars
  TensorId partials = no_tensor;  ///< uint8 [ranks, sizeof(StepPartial)]
  TensorId experts = no_tensor;   ///< uint8 [ranks, sizeof(ExpertsPartial)]; none: the model reports none
  PreferenceTensors preference{};
  TeacherTensors teacher{};
};

Tensor persistent(std::string name, DType dtype, Shape shape, Category category);

}  // namespace ztrain::program
