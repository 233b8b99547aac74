#include "program/jobs/compile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/preference_loss.hpp"
#include "base/shape.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernel_interface/experts_partial.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "program/codes/quantized.hpp"
#include "program/codes/sign_sums.hpp"
#include "program/jobs/pass_list.hpp"
#include "program/jobs/prove.hpp"
#include "program/passes/final_passes.hpp"
#include "program/passes/weight_codes.hpp"

namespace ztrain::program {

namespace {

/// By unit. The axes are those of its parameters, which are all the same. Whole is the coarsest of what its
/// parameters, their codes and the optimizer ask for.
std::vector<UnitCut> unit_cuts(const RankGraph& of, Whole optimizer) {
  const model::Graph& graph = of.graph;
  std::vector<UnitCut> cuts(graph.units.size());
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const model::Parameter& p = graph.parameters[i];
    if (p.unit < 0) continue;
    REQUIRE(p.state_over.without(state_axes).empty(), "{}: state is not sharded over {}", p.name,
            to_string(p.state_over.without(state_axes)));
    UnitCut& cut = cuts[at(p.unit)];
    cut.shard_axes = p.state_over;
    cut.shards = of.at.mesh().size(cut.shard_axes);
    cut.reduce_axes = of.placed.summed_over.empty() ? AxisSet() : of.placed.summed_over[i];
    cut.whole = std::max({cut.whole, p.whole, p.coded() ? Whole::block : Whole::element,
                          p.trainable ? optimizer : Whole::element});
  }
  return cuts;
}

Layout make_layout(const RankGraph& of, Whole optimizer) {
  std::vector<ParameterShape> shapes;
  for (const model::Parameter& p : of.graph.parameters)
    shapes.push_back({p.name, p.shape, p.slice, p.unit, p.decay, p.trainable, p.adapter, p.other_rank,
                      p.joined, p.form.any(), p.by_matrix});
  return Layout(std::move(shapes), unit_cuts(of, optimizer), of.at);
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

/// The model cut as the deck says, or by what its blocks cost: the same on every rank.
Stages stages_of(const model::Graph& graph, const JobSpec& spec, bool training = true) {
  const StageMap map = stage_map(spec.schedule, spec.mesh[Axis::pipeline]);
  if (!spec.pipeline.begins.empty()) return {map, spec.pipeline.begins};
  const auto blocks = static_cast<int>(graph.blocks.size());
  const int layers = blocks - 2, wanted = map.stages();
  const std::string cut =
      fmt::format("mesh.pipeline = {}{}", map.ranks,
                  map.chunks > 1 ? fmt::format(" with {} stages on each of its ranks", map.chunks) : "");
  REQUIRE(wanted <= layers, "{} makes {} stages, and the model has {} layers: each stage needs one", cut,
          wanted, layers);
  if (spec.pipeline.layers.empty()) {
    const auto costs = training ? block_costs(graph, spec.recompute, spec.target) : block_weights(graph);
    return {map, cut_evenly(costs, wanted)};
  }
  const std::vector<int>& given = spec.pipeline.layers;
  const int sum = std::accumulate(given.begin(), given.end(), 0);
  REQUIRE(
      std::ssize(given) == wanted && sum == layers,
      "pipeline.layers has {} stages of {} layers in all; {} makes {} stages, and the model has {} layers",
      given.size(), sum, cut, wanted, layers);
  return {map, cut_by_layers(given, blocks)};
}

std::shared_ptr<PipelineSteps> steps_of(const JobSpec& spec) {
  if (spec.pipeline.steps) return spec.pipeline.steps;
  return std::make_shared<PipelineSteps>(spec.schedule, spec.mesh[Axis::pipeline],
                                         spec.pipeline.receive_ahead);
}

/// What the check of placements starts from.
void note_parameters(Program& program, const model::Graph& graph, const Cut& cut) {
  for (const FlatUnit& unit : cut.layout.units()) {
    const WeightForm& form = cut.units[at(unit.unit)].form;
    program.unit_elements.push_back(cut.items(unit.unit, unit.elements()));
    program.unit_cuts.push_back(unit);
    for (const Segment& s : unit.segments) {
      const ParameterShape& shape = cut.layout.parameters()[at(s.parameter)];
      const auto p = at(s.parameter);
      const model::Rows& computed = cut.computed[p];
      const Quanta items = form.any() ? quanta_of(form, s, computed)
                                      : Quanta{s.begin + computed.begin, computed.end - computed.begin};
      program.parameters.push_back({shape.name, unit.unit, items.begin, items.count, shape.slice.dim,
                                    graph.parameters[p].computed.end > 0, shape.trainable, shape.other_rank,
                                    shape.slice.axes, static_cast<int>(shape.shape.size())});
    }
  }
}

/// What all ranks report of a graph, whichever part of it they have.
struct Reports {
  bool experts = false, distillation = false;
  std::int64_t slots = 0;  ///< of a loss on pairs
};
Reports reports_of(const model::Graph& graph) {
  return {graph.experts.reports(), graph.teacher.report >= 0,
          graph.pairs.logps >= 0 ? graph.value(graph.pairs.logps).shape[0] : 0};
}

void add_reports(Base& base, const Reports& reports) {
  Program& p = base.program;
  JobTensors& tensors = base.tensors;
  const auto scalar = [&](const char* name, DType dtype, Shape shape) {
    return p.add(persistent(name, dtype, std::move(shape), Category::scalar));
  };
  const auto of_tokens = [&](const char* name, DType dtype, Shape shape) {
    return p.add(persistent(name, dtype, std::move(shape), Category::activation));
  };
  if (reports.experts)
    tensors.experts = scalar("experts", DType::u8, {p.mesh.ranks(), sizeof(ExpertsPartial)});
  if (reports.slots > 0)
    tensors.preference = {scalar("preference", DType::f64, {preference_sums}),
                          of_tokens("preference.logps", DType::f64, {reports.slots})};
  if (reports.distillation) tensors.teacher.report = scalar("distillation", DType::f64, {2});
  if (base.graph.teacher.words < 0) return;
  const Shape told = base.graph.value(base.graph.teacher.words).shape;
  tensors.teacher.words = of_tokens("teacher.words", DType::i32, told);
  tensors.teacher.log_likelihoods = of_tokens("teacher.log_likelihoods", DType::f32, told);
}

}  // namespace

Base make_base(model::Graph graph, const JobSpec& spec, int rank, const CachedGraph* cache) {
  const bool training = cache == nullptr;
  const Reports reports = training ? reports_of(graph) : Reports{};
  Stages stages;
  if (spec.mesh[Axis::pipeline] > 1) stages = stages_of(graph, spec, training);
  RankGraph of_rank{std::move(graph), spec, Coordinate(spec.mesh, rank), cache, {}, stages};
  run_graph_passes(of_rank);
  const optim::Info* const optimizer =
      training && spec.kind == JobKind::training ? &optim::find(spec.optimizer.options.name) : nullptr;
  Layout layout = make_layout(of_rank, optimizer ? optimizer->whole : Whole::element);
  graph = std::move(of_rank.graph);
  std::vector<model::Unit> units = graph.units;
  std::vector<model::Rows> computed = computed_elements(graph, layout);
  Base base{std::move(graph),
            std::move(stages),
            Cut{of_rank.at, std::move(layout), spec.strategy, spec.precision, std::move(units),
                std::move(computed)},
            {},
            {},
            steps_of(spec)};
  Program& p = base.program;
  p.rank = rank;
  p.mesh = spec.mesh;
  p.token_order = token_order(spec.mesh, spec.context, spec.token_multiple);
  p.tokens = spec.tokens;
  p.target = spec.target;
  p.blocks = base.graph.blocks;
  for (const model::Unit& unit : base.graph.units) p.units.push_back(unit.name);
  if (training) note_parameters(p, base.graph, base.cut);
  base.tensors.units = add_unit_states(p, base.cut, optimizer, spec.optimizer.options.settings());
  for (UnitState& unit : base.tensors.units) unit.saved = unit.trained || spec.saves_frozen;
  give_homes(p, base.cut, base.tensors.units, spec.offload);
  add_snapshots(p, base.tensors.units, spec.snapshots);
  base.tensors.scales = add_weight_scales(p, base.graph);
  base.tensors.statistics = add_weight_statistics(p, base.graph);
  base.tensors.scalars = p.add(persistent("scalars", DType::u8, {sizeof(StepScalars)}, Category::scalar));
  base.tensors.partials =
      p.add(persistent("partials", DType::u8, {spec.mesh.ranks(), sizeof(StepPartial)}, Category::scalar));
  add_reports(base, reports);
  for (int m = 0; m < spec.micro_batches; ++m)
    for (const model::Value& v : base.graph.values)
      if (v.role == model::Role::input)
        p.add(persistent(input_name(v.name, m), v.dtype, v.shape, Category::input));
  return base;
}

std::vector<TensorId> given(const Program& program, const JobTensors& tensors) {
  std::vector<TensorId> all{tensors.scalars};
  for (const UnitState& unit : tensors.units) {
    all.push_back(unit.master.slice);
    for (const State& state : unit.optimizer) all.push_back(state.slice);
  }
  for (const TensorId statistics : tensors.statistics)
    if (statistics != no_tensor) all.push_back(statistics);
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].category == Category::input || program.tensors[t].category == Category::cache)
      all.push_back(static_cast<TensorId>(t));
  return all;
}

namespace {

/// A step of so many micro-batches, or of those that stand for the step's, up to the last passes.
Making step_of(const Base& base, const JobSpec& spec, int micro_batches, std::optional<Middle> middle = {}) {
  Making making = start(base, spec, ProgramKind::train, train_name);
  making.micro_batches = micro_batches;
  making.middle = std::move(middle);
  run_step_passes(making);
  return making;
}

/// What is kept, and what is alive at once at most, without addresses.
std::array<TierPlan, tier_count> least_of(Program& program) {
  std::array<TierPlan, tier_count> least;
  plan_lifetimes(program);
  const auto kept = persistent_bytes(program), live = live_bytes(program);
  for (std::size_t t = 0; t < least.size(); ++t) least[t] = {kept[t], live[t], live[t]};
  return least;
}

/// Whether the first and the last micro-batch of a step can be made without the others.
bool has_ends(const JobSpec& spec) {
  return spec.mesh[Axis::pipeline] == 1 && spec.micro_batches > 2 && spec.program_passes.empty();
}

/// Whether the first and the last micro-batch alone may fit: others need no less, and these are soon made.
bool ends_may_fit(const Base& base, const JobSpec& spec, const MayFit& may_fit) {
  Making ends = step_of(base, spec, 2);
  return may_fit(least_of(ends.program()));
}

/// What of the step stands for more of it. Where a time of the body has several micro-batches, and backward
/// runs blocks again, the proof has refused what came of it: such steps are compiled in full.
std::optional<Middle> middle_of_step(const Base& base, const JobSpec& spec) {
  if (spec.every_micro_batch || !spec.program_passes.empty()) return std::nullopt;
  std::optional<Middle> middle = base.steps->middle(spec.micro_batches);
  if (middle && middle->stride > 1 && spec.recompute.every > 0) return std::nullopt;
  return middle;
}

/// Nothing where it may not fit.
std::optional<Program> train_program(const Base& base, const JobSpec& spec, const MayFit& may_fit) {
  if (may_fit && has_ends(spec) && !ends_may_fit(base, spec, may_fit)) return std::nullopt;
  if (auto middle = middle_of_step(base, spec)) {
    const int few = middle->few;
    Making step = step_of(base, spec, few, std::move(middle));
    if (may_fit && !may_fit(least_of(step.program()))) return std::nullopt;
    run_final_passes(step);
    if (!step.given_up) return std::move(step.program());
  }
  Making step = step_of(base, spec, spec.micro_batches);
  if (may_fit && !may_fit(least_of(step.program()))) return std::nullopt;
  run_final_passes(step);
  return std::move(step.program());
}

/// The step in which no copies sum up signs.
std::optional<Program> warm_up_program(const Base& base, JobSpec spec, const MayFit& may_fit) {
  spec.sharding.reduce.sums_signs = false;
  std::optional<Program> step = train_program(base, spec, may_fit);
  if (step) step->name = warm_up_name;
  return step;
}

/// Returns the same job with room for all rows. Its backward computes each block anew, so only one block's
/// rows are alive at once. The job gives the same bits as the first.
JobSpec with_all_rows(const JobSpec& spec, const Base& base) {
  JobSpec wide = spec;
  wide.expert_capacity = 0;
  wide.recompute.every = 1;
  wide.pipeline.begins = base.stages.begins;
  wide.pipeline.steps = base.steps;
  return wide;
}

/// Proves in which order the job's Programs may run, and returns the job with its graph.
Job proven_job(Job job, Base& base, const JobSpec& spec) {
  if (spec.proven) prove(spec, [&] { verify_successions(job.programs, given(base.program, base.tensors)); });
  job.graph = std::move(base.graph);
  return job;
}

Job evaluation_job(Base base, const JobSpec& spec) {
  Job job{{}, base.cut.layout, base.tensors};
  const Successions any{load_name, evaluation_name};
  job.programs.add(make(start(base, spec, ProgramKind::load, load_name)), {load_name, evaluation_name, ""});
  job.programs.add(make(start(base, spec, ProgramKind::evaluate, evaluation_name)), any);
  return proven_job(std::move(job), base, spec);
}

}  // namespace

std::optional<Job> compile_if(model::Graph graph, const JobSpec& spec, int rank, const MayFit& may_fit) {
  std::optional<model::Graph> again;
  if (spec.may_overflow()) again = graph;
  Base base = make_base(std::move(graph), spec, rank);
  if (may_fit && !may_fit(least_of(base.program))) return std::nullopt;
  if (spec.kind == JobKind::evaluation) return evaluation_job(std::move(base), spec);
  std::optional<Program> train = train_program(base, spec, may_fit);
  if (!train) return std::nullopt;
  Job job{{}, base.cut.layout, base.tensors};
  Successions any{load_name, train_name, evaluation_name};
  if (again) any.push_back(all_rows_name);
  const bool warms_up = sums_signs(base.tensors);
  if (warms_up) any.push_back(warm_up_name);
  Successions first = any;
  first.emplace_back("");
  job.programs.add(make(start(base, spec, ProgramKind::load, load_name)), first);
  job.programs.add(std::move(*train), any);
  if (warms_up) {
    std::optional<Program> warm_up = warm_up_program(base, spec, may_fit);
    if (!warm_up) return std::nullopt;
    job.programs.add(std::move(*warm_up), any);
    job.warm_up_steps = spec.optimizer.options.freeze_step;
  }
  if (again) {
    const JobSpec wide = with_all_rows(spec, base);
    const Base wide_base = make_base(std::move(*again), wide, rank);
    ASSERT(wide_base.program.tensors.size() == base.program.tensors.size(),
           "the Program with room for all rows keeps {} tensors, and the first {}",
           wide_base.program.tensors.size(), base.program.tensors.size());
    std::optional<Program> all_rows = train_program(wide_base, wide, may_fit);
    if (!all_rows) return std::nullopt;
    all_rows->name = all_rows_name;
    job.programs.add(std::move(*all_rows), any);
    job.programs.add(make(start(wide_base, wide, ProgramKind::evaluate, evaluation_name)), any);
  } else {
    job.programs.add(make(start(base, spec, ProgramKind::evaluate, evaluation_name)), any);
  }
  return proven_job(std::move(job), base, spec);
}

bool job_may_fit(model::Graph graph, const JobSpec& spec, int rank, const MayFit& may_fit) {
  Base base = make_base(std::move(graph), spec, rank);
  if (!may_fit(least_of(base.program))) return false;
  if (has_ends(spec)) return ends_may_fit(base, spec, may_fit);
  auto middle = middle_of_step(base, spec);
  const int few = middle ? middle->few : spec.micro_batches;
  Making step = step_of(base, spec, few, std::move(middle));
  return may_fit(least_of(step.program()));
}

JobSpec with_stages(const model::Graph& graph, JobSpec spec) {
  if (spec.mesh[Axis::pipeline] == 1) return spec;
  spec.pipeline.begins = stages_of(graph, spec).begins;
  spec.pipeline.steps = steps_of(spec);
  return spec;
}

Job compile(model::Graph graph, const JobSpec& spec, int rank) {
  return std::move(*compile_if(std::move(graph), spec, rank, nullptr));
}

}  // namespace ztrain::program
