#include "program/passes/unit_state.hpp"

#include "base/shape.hpp"

namespace ztrain::program {
namespace {

struct StateSpec {
  std::string prefix;
  DType dtype;
  Category category;
  bool sharded;
  std::int64_t granule = 1;  ///< elements per item
  WeightForm form{};         ///< of a unit in 4 or 8 bits, whose items are bytes
  bool of_each_copy = false;
};

State add_state(Program& program, const Cut& cut, const FlatUnit& unit, const StateSpec& spec) {
  const std::string name = spec.prefix + program.units[at(unit.unit)];
  // Items of a shard: both are multiples of the quantum.
  const std::int64_t items =
      spec.form.any() ? spec.form.bytes(unit.shard_elements) : unit.shard_elements / spec.granule;
  const TensorId whole = program.add({.name = name,
                                      .dtype = spec.dtype,
                                      .shape = {spec.sharded ? items : items * unit.shards},
                                      .category = spec.category,
                                      .persistent = true,
                                      .unit = spec.granule == 1 && !spec.of_each_copy ? unit.unit : -1});
  if (spec.sharded || unit.shards == 1) return {whole, whole};
  const TensorId slice =
      program.add_view(name + ".slice", whole, cut.at.index_in(unit.shard_axes) * items, items);
  program.tensor(slice).persistent = false;
  return {slice, whole};
}

}  // namespace

static_assert(code_quantum == quantum);

Quanta quanta_of(const WeightForm& form, const Segment& parameter, const model::Rows& elements) {
  const std::int64_t first = elements.begin / quantum, last = ceil_div(elements.end, quantum);
  return {form.bytes(parameter.begin) + first * form.quantum_bytes(), (last - first) * form.quantum_bytes()};
}

AxisSet copying_axes(const Cut& cut, int unit) {
  const FlatUnit& flat = cut.layout.unit(unit);
  const AxisSet summed = flat.reduce_axes.without(flat.shard_axes);
  AxisSet axes;
  for (int a = 0; a < axis_count; ++a)
    if (const auto axis = static_cast<Axis>(a); summed.contains(axis) && cut.at.mesh()[axis] > 1)
      axes = axes | axis;
  return axes;
}

AxisSet sign_axes(const Cut& cut, int unit) {
  const AxisSet axes = copying_axes(cut, unit);
  return cut.units[at(unit)].other_rank < 0 ? axes.without(axes.without(token_axes)) : AxisSet();
}

std::vector<UnitState> add_unit_states(Program& program, const Cut& cut, const optim::Info* optimizer,
                                       const optim::Settings& settings) {
  const Precision& p = cut.precision;
  const bool optimizer_sharded = cut.strategy.optimizer_sharded;
  std::vector<UnitState> states;
  for (const FlatUnit& unit : cut.layout.units()) {
    UnitState s;
    const bool coded = cut.coded(unit.unit), sharded = cut.shards_parameters(unit.unit);
    const WeightForm& form = cut.units[at(unit.unit)].form;
    const bool wide = cut.units[at(unit.unit)].constant && p.parameters != DType::f64;
    const DType type = wide ? DType::f32 : p.parameters;
    // Where codes are computed with, nobody needs more of the parameters than what is stepped here.
    s.parameters = add_state(program, cut, unit,
                             {"param.", form.any() ? DType::u8 : type, Category::parameter,
                              sharded || (coded && optimizer_sharded), 1, form});
    s.computed = coded
                     ? add_state(program, cut, unit, {"codes.", DType::f8e4m3, Category::parameter, sharded})
                     : s.parameters;
    const bool trainable = cut.units[at(unit.unit)].trainable;
    s.trained = trainable;
    s.separate_master = trainable && p.master != p.parameters;
    s.master = s.separate_master
                   ? add_state(program, cut, unit, {"master.", p.master, Category::master, optimizer_sharded})
                   : s.parameters;
    if (trainable && optimizer != nullptr) {
      const bool other = !optimizer->others.empty() && !cut.units[at(unit.unit)].by_matrix;
      const optim::Info& rule = other ? optim::find(optimizer->others) : *optimizer;
      s.rule = rule.name;
      s.states = optim::kept_states(rule, settings, p.master, !sign_axes(cut, unit.unit).empty());
    }
    for (const optim::StateInfo& info : s.states)
      s.optimizer.push_back(add_state(program, cut, unit,
                                      {info.name + ".",
                                       info.dtype.value_or(p.moments),
                                       Category::optimizer,
                                       optimizer_sharded || info.of_each_copy,
                                       info.granule,
                                       {},
                                       info.of_each_copy}));
    s.quantized = form.any();
    s.step_begin = optimizer_sharded ? unit.shard_begin(cut.at) : 0;
    s.step_count = optimizer_sharded ? unit.shard_elements : unit.elements();
    states.push_back(s);
  }
  return states;
}

void add_snapshots(Program& program, std::vector<UnitState>& units, Snapshots snapshots) {
  if (snapshots == Snapshots::none) return;
  const bool all = snapshots == Snapshots::of_all || owns(Coordinate(program.mesh, program.rank));
  for (UnitState& unit : units) {
    if (unit.quantized || (snapshots == Snapshots::of_savers && !unit.saved)) continue;
    std::vector<TensorId> slices{unit.master.slice};
    for (const State& state : unit.optimizer) slices.push_back(state.slice);
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (!all && !unit.is_of_each_copy(i)) continue;
      const Tensor& of = program.tensor(slices[i]);
      unit.snapshot[i] = program.add({.name = "snapshot." + of.name,
                                      .dtype = of.dtype,
                                      .shape = of.shape,
                                      .category = Category::snapshot,
                                      .tier = Tier::host,
                                      .persistent = true});
    }
  }
}

Tensor persistent(std::string name, DType dtype, Shape shape, Category category) {
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = std::move(shape),
          .category = category,
          .persistent = true};
}

}  // namespace ztrain::program
