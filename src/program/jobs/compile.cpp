#include "program/jobs/job_base.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "kernel_interface/step_partial.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "program/ir/repeat.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/fusion.hpp"
#include "program/passes/join_products.hpp"
#include "program/passes/optimizer.hpp"
#include "program/passes/parameter_rates.hpp"
#include "program/passes/place.hpp"
#include "program/passes/weight_codes.hpp"

namespace ztrain::program {

Tensor persistent(std::string name, DType dtype, Shape shape, Category category) {
  Tensor t;
  t.name = std::move(name);
  t.dtype = dtype;
  t.shape = std::move(shape);
  t.category = category;
  t.persistent = true;
  return t;
}

namespace {

Layout make_layout(const model::Graph& graph, const Coordinate& at) {
  std::vector<ParameterShape> shapes;
  for (const model::Parameter& p : graph.parameters)
    shapes.push_back({p.name, p.shape, p.slice, p.unit, p.decay, p.trainable, p.adapter});
  return Layout(std::move(shapes), static_cast<int>(graph.units.size()), at.mesh().size(Cut::shard_axes()),
                at[Axis::tensor]);
}

/// By unit: those of its parameters, which are all the same.
std::vector<AxisSet> summed_over_of_units(const model::Graph& graph, const Placed& placed) {
  std::vector<AxisSet> axes(graph.units.size());
  for (std::size_t p = 0; p < placed.summed_over.size(); ++p)
    axes[static_cast<std::size_t>(graph.parameters[p].unit)] = placed.summed_over[p];
  return axes;
}

std::vector<model::Rows> computed_elements(const model::Graph& graph, const Layout& layout) {
  std::vector<model::Rows> elements_of;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const model::Parameter& parameter = graph.parameters[p];
    const std::int64_t all = layout.segment_of(static_cast<int>(p)).count;
    const std::int64_t row = parameter.computed.end > 0 ? all / parameter.shape[0] : 0;
    elements_of.push_back(row > 0 ? model::Rows{parameter.computed.begin * row, parameter.computed.end * row}
                                  : model::Rows{0, all});
  }
  return elements_of;
}

/// What the check of placements starts from.
void note_parameters(Program& program, const model::Graph& graph, const Cut& cut) {
  for (const FlatUnit& unit : cut.layout.units()) {
    program.unit_elements.push_back(unit.elements());
    for (const Segment& s : unit.segments) {
      const ParameterShape& shape = cut.layout.parameters()[static_cast<std::size_t>(s.parameter)];
      const auto p = static_cast<std::size_t>(s.parameter);
      const model::Rows& computed = cut.computed[p];
      program.parameters.push_back({shape.name, unit.unit, s.begin + computed.begin,
                                    computed.end - computed.begin, shape.slice.dim,
                                    graph.parameters[p].computed.end > 0, shape.trainable});
    }
  }
}

ShardOptions shard_options(const JobSpec& spec) {
  ShardOptions options = spec.sharding;
  options.gather.keep = !spec.strategy.reshard_after_forward;
  return options;
}

}  // namespace

Base make_base(model::Graph graph, const JobSpec& spec, int rank, bool training) {
  const Coordinate at(spec.mesh, rank);
  for (const auto& pass : spec.graph_passes) pass(graph, at);
  Placed placed;
  if (training || !spec.tensor.parameters.empty()) placed = place(graph, at, spec.tensor, spec.context);
  join_products(graph);
  group_parameters(graph, spec.units, placed.summed_over);
  if (training) require_patterns_match(graph, spec.optimizer);
  Layout layout = make_layout(graph, at);
  std::vector<model::Unit> units = graph.units;
  std::vector<AxisSet> summed_over = summed_over_of_units(graph, placed);
  std::vector<model::Rows> computed = computed_elements(graph, layout);
  Base base{std::move(graph),
            Cut{at, std::move(layout), spec.strategy, spec.precision, std::move(units),
                std::move(summed_over), std::move(computed)},
            {},
            {}};
  Program& p = base.program;
  p.rank = rank;
  p.mesh = spec.mesh;
  p.target = spec.target;
  p.blocks = base.graph.blocks;
  for (const model::Unit& unit : base.graph.units) p.units.push_back(unit.name);
  if (training) note_parameters(p, base.graph, base.cut);
  base.tensors.optimizer_states =
      training ? optim::find(spec.optimizer.options.name).states(spec.optimizer.settings())
               : std::vector<optim::StateInfo>{};
  base.tensors.units = add_unit_states(p, base.cut, base.tensors.optimizer_states);
  base.tensors.scales = add_weight_scales(p, base.graph);
  base.tensors.scalars = p.add(persistent("scalars", DType::u8, {sizeof(StepScalars)}, Category::scalar));
  base.tensors.partials =
      p.add(persistent("partials", DType::u8, {spec.mesh.ranks(), sizeof(StepPartial)}, Category::scalar));
  for (int m = 0; m < spec.micro_batches; ++m)
    for (const model::Value& v : base.graph.values)
      if (v.role == model::Role::input)
        p.add(persistent(input_name(v.name, m), v.dtype, v.shape, Category::input));
  return base;
}

namespace {

/// What can be proven of one rank's Program by itself.
void prove(const Program& program) {
  for (const Op& op : program.ops) check_record(op);
  verify_rank(program);
  verify_placements(program);
}

}  // namespace

Program finish(Program program, const JobSpec& spec, std::string_view name) {
  program.name = name;
  for (const auto& pass : spec.program_passes) pass(program);
  link_dependencies(program);
  plan_lifetimes(program);
  plan_memory(program);
  prove(program);
  return program;
}

std::vector<TensorId> given(const Program& program, const JobTensors& tensors) {
  std::vector<TensorId> all{tensors.scalars};
  for (const UnitState& unit : tensors.units) {
    all.push_back(unit.master.slice);
    for (const State& state : unit.optimizer) all.push_back(state.slice);
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].category == Category::input || program.tensors[t].category == Category::cache)
      all.push_back(static_cast<TensorId>(t));
  return all;
}

namespace {

/// As finish, for a step of which micros_to_compile were expanded, in a job without passes of its own;
/// nothing where the third cannot stand for those that were left out (program/ir/repeat.hpp).
std::optional<Program> finish_repeated(Program program, const std::vector<int>& micros,
                                       std::string_view name) {
  program.name = name;
  const auto images = find_repeat(program, micros);
  if (!images) return std::nullopt;
  link_dependencies(program);
  plan_lifetimes(program);
  if (!plan_memory(program, *images)) return std::nullopt;
  set_persistent_steps(program, *images);
  if (!repeat_fault(program).empty()) return std::nullopt;
  prove(program);
  return program;
}

/// The step's turns, with the numbers that its micro-batches have in the whole step.
std::vector<Turn> turns_of(const JobSpec& spec, const std::vector<int>& micros) {
  std::vector<Turn> turns = spec.schedule.turns({.micro_batches = static_cast<int>(micros.size())});
  const std::string fault = fault_of(turns, spec.schedule.chunks, static_cast<int>(micros.size()));
  ASSERT(fault.empty(), "schedule '{}': {}", spec.schedule.name, fault);
  for (Turn& turn : turns) turn.micro = micros[static_cast<std::size_t>(turn.micro)];
  return turns;
}

/// Up to the last passes.
Program expanded_step(const Base& base, const JobSpec& spec, const std::vector<int>& micros) {
  ExpandOptions options;
  options.turns = turns_of(spec, micros);
  options.chunks = spec.schedule.chunks;
  options.micro_batches = spec.micro_batches;
  options.recompute = spec.recompute;
  options.gradients = spec.precision.gradients;
  options.accumulate_locally = !spec.sharding.reduce.every_micro || base.cut.shards() == 1;
  Expanded expanded = expand(base.program, base.graph, options);
  drop_dead_ops(expanded.program, expanded.results);
  number_tokens(expanded.program);
  fuse_residual_norms(expanded.program);
  overlay_in_place(expanded.program);
  const std::vector<TensorId> losses = expanded.results;
  Sharded sharded = shard(std::move(expanded), base.cut, base.tensors.units, shard_options(spec));
  append_optimizer(sharded.program, base.cut, base.tensors, spec.optimizer, sharded.gradients, losses);
  append_weight_codes(sharded.program, base.cut, base.tensors, {ActionKind::optimize, true});
  return std::move(sharded.program);
}

/// What is kept, and what is alive at once at most, without addresses.
std::array<TierPlan, tier_count> least_of(Program& program) {
  std::array<TierPlan, tier_count> least;
  plan_lifetimes(program);
  const auto kept = persistent_bytes(program), live = live_bytes(program);
  for (std::size_t t = 0; t < least.size(); ++t) least[t] = {kept[t], live[t], live[t]};
  return least;
}

/// Whether the first and the last micro-batch alone may fit: others need no less, and these are soon made.
bool ends_may_fit(const Base& base, const JobSpec& spec, const MayFit& may_fit) {
  if (!may_fit || spec.micro_batches < 3 || !spec.program_passes.empty()) return true;
  Program ends = expanded_step(base, spec, {0, spec.micro_batches - 1});
  return may_fit(least_of(ends));
}

/// Nothing where it may not fit.
std::optional<Program> train_program(const Base& base, const JobSpec& spec, const MayFit& may_fit) {
  const std::string_view name = train_name;
  const std::vector<int> some = micros_to_compile(spec.micro_batches);
  if (!ends_may_fit(base, spec, may_fit)) return std::nullopt;
  if (std::ssize(some) < spec.micro_batches && spec.schedule.repeats && !spec.every_micro_batch &&
      spec.program_passes.empty()) {
    Program step = expanded_step(base, spec, some);
    if (may_fit && !may_fit(least_of(step))) return std::nullopt;
    if (auto program = finish_repeated(std::move(step), some, name)) return program;
  }
  std::vector<int> all(static_cast<std::size_t>(spec.micro_batches));
  std::iota(all.begin(), all.end(), 0);
  Program step = expanded_step(base, spec, all);
  if (may_fit && !may_fit(least_of(step))) return std::nullopt;
  return finish(std::move(step), spec, name);
}

}  // namespace

Sharded forward_program(const Base& base, const JobSpec& spec, Program program,
                        std::vector<TensorId>& results) {
  ExpandOptions options;
  options.training = false;
  Expanded expanded = expand(std::move(program), base.graph, options);
  drop_dead_ops(expanded.program, expanded.results);
  fuse_residual_norms(expanded.program);
  overlay_in_place(expanded.program);
  results = expanded.results;
  return shard(std::move(expanded), base.cut, base.tensors.units, shard_options(spec));
}

namespace {

Program evaluation_program(const Base& base, const JobSpec& spec) {
  std::vector<TensorId> losses;
  Sharded sharded = forward_program(base, spec, base.program, losses);
  append_partials(sharded.program, base.cut, base.tensors, losses, {});
  return finish(std::move(sharded.program), spec, evaluation_name);
}

}  // namespace

config::Optimizer OptimizerSpec::standard() {
  config::Optimizer o;
  o.name = "adamw";
  o.beta1 = 0.9;
  o.beta2 = 0.95;
  o.eps = 1e-8;
  o.weight_decay = 0.1;
  o.momentum = 0.9;
  return o;
}

std::optional<Job> compile_if(model::Graph graph, const JobSpec& spec, int rank, const MayFit& may_fit) {
  Base base = make_base(std::move(graph), spec, rank, true);
  if (may_fit && !may_fit(least_of(base.program))) return std::nullopt;
  std::optional<Program> train = train_program(base, spec, may_fit);
  if (!train) return std::nullopt;
  Job job{{}, base.cut.layout, base.tensors};
  Program load = load_program(base.program, base.tensors);
  for (const bool trained : {true, false})
    append_weight_codes(load, base.cut, base.tensors, {ActionKind::load, trained});
  const Successions any{load_name, train_name, evaluation_name};
  job.programs.add(finish(std::move(load), spec, load_name), {"", load_name, train_name, evaluation_name});
  job.programs.add(std::move(*train), any);
  job.programs.add(evaluation_program(base, spec), any);
  verify_successions(job.programs, given(base.program, base.tensors));
  job.graph = std::move(base.graph);
  return job;
}

Job compile(model::Graph graph, const JobSpec& spec, int rank) {
  return std::move(*compile_if(std::move(graph), spec, rank, nullptr));
}

std::vector<std::vector<int>> rank_classes(const model::Graph& graph, const JobSpec& spec) {
  const bool passes = !spec.graph_passes.empty() || !spec.program_passes.empty();
  // Equal parts over the tensor axis differ in attributes alone.
  const bool tensor = std::ranges::any_of(spec.tensor.parameters, [](const model::ParameterCut& cut) {
    return !cut.slice.begins.empty() || !cut.taken.empty();
  });
  const bool codes = std::ranges::any_of(graph.parameters, &model::Parameter::coded);
  std::map<std::tuple<int, int, int, int, int>, std::vector<int>> classes;
  for (int rank = 0; rank < spec.mesh.ranks(); ++rank) {
    const Coordinate at(spec.mesh, rank);
    const int part = spec.sharding.secondary_shards ? at.index_in(Cut::inner_axes()) : 0;
    const int shard = codes ? at.index_in(Cut::shard_axes()) : 0;
    classes[{passes ? rank : 0, at[Axis::pipeline], part, shard, tensor ? at[Axis::tensor] : 0}].push_back(
        rank);
  }
  std::vector<std::vector<int>> list;
  for (auto& [facts, ranks] : classes) list.push_back(std::move(ranks));
  return list;
}

void verify_job(const model::Graph& graph, const JobSpec& spec, const Job& rank_0) {
  const std::vector<std::vector<int>> classes = rank_classes(graph, spec);
  std::vector<Job> others;
  std::vector<std::vector<const Program*>> programs;  // by class
  others.reserve(classes.size());
  for (const std::vector<int>& ranks : classes) {
    const bool known = ranks.front() == rank_0.train().rank;
    if (!known) others.push_back(compile(graph, spec, ranks.front()));
    programs.push_back((known ? rank_0 : others.back()).programs.all());
  }
  verify_together(programs, classes);
}

void verify_job(const model::Graph& graph, const JobSpec& spec) {
  verify_job(graph, spec, compile(graph, spec, 0));
}

}  // namespace ztrain::program
