#include "program/unit_state.hpp"

namespace ztrain::program {
namespace {

struct StateSpec {
  const char* prefix;
  DType dtype;
  Category category;
  bool sharded;
};

State add_state(Program& program, const Cut& cut, const FlatUnit& unit, const StateSpec& spec) {
  const std::string name = spec.prefix + program.units[static_cast<std::size_t>(unit.unit)];
  Tensor t;
  t.name = name;
  t.dtype = spec.dtype;
  t.category = spec.category;
  t.persistent = true;
  t.shape = {spec.sharded ? unit.shard_elements : unit.elements()};
  State state;
  state.whole = state.slice = program.add(t);
  if (spec.sharded || unit.shards == 1) return state;
  t.name += ".slice";
  t.persistent = false;
  t.base = state.whole;
  t.offset = cut.shard_index() * unit.shard_elements * size_of(spec.dtype);
  t.shape = {unit.shard_elements};
  state.slice = program.add(std::move(t));
  return state;
}

}  // namespace

std::vector<UnitState> add_unit_states(Program& program, const Cut& cut, bool training) {
  const Precision& p = cut.precision;
  const bool optimizer_sharded = cut.strategy.optimizer_sharded;
  std::vector<UnitState> states;
  for (const FlatUnit& unit : cut.layout.units()) {
    UnitState s;
    s.parameters = add_state(program, cut, unit,
                             {"param.", p.parameters, Category::parameter, cut.shards_parameters(unit.unit)});
    s.separate_master = p.master != p.parameters;
    s.master = s.separate_master
                   ? add_state(program, cut, unit, {"master.", p.master, Category::master, optimizer_sharded})
                   : s.parameters;
    if (training) {
      s.exp_avg =
          add_state(program, cut, unit, {"exp_avg.", p.moments, Category::optimizer, optimizer_sharded});
      s.exp_avg_sq =
          add_state(program, cut, unit, {"exp_avg_sq.", p.moments, Category::optimizer, optimizer_sharded});
    }
    s.step_begin = optimizer_sharded ? cut.shard_index() * unit.shard_elements : 0;
    s.step_count = optimizer_sharded ? unit.shard_elements : unit.elements();
    states.push_back(s);
  }
  return states;
}

}  // namespace ztrain::program
