#include "program/passes/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/dequantize/record.hpp"
#include "program/ops/emit.hpp"

namespace ztrain::program {
namespace {

class Sharder {
 public:
  Sharder(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
          const ShardOptions& options)
      : in_(std::move(expanded)),
        cut_(cut),
        states_(states),
        options_(options),
        reducer_(cut, options.reduce) {
    const auto has_inner = [&](const FlatUnit& unit) { return inner_ranks(unit.unit) > 1; };
    REQUIRE(!options.secondary_shards || std::ranges::any_of(cut.layout.units(), has_inner),
            "sharding.reshard_after_forward: a group of one rank cannot share a copy");
    ops_ = std::move(in_.program.ops);
    in_.program.ops.clear();
    units_ = in_.program.units;
    index_placeholders();
    plan_parameters();
    plan_gradients();
  }

  Sharded run() {
    result_.program = std::move(in_.program);
    program().ops.reserve(ops_.size() + 2 * plan_.gathers.size() + 4 * buffers_.size());  // about
    std::size_t started = 0;
    std::vector<std::vector<int>> releases(spans_.size()), reductions(spans_.size());
    for (std::size_t g = 0; g < plan_.gathers.size(); ++g)
      releases[at(plan_.gathers[g].last)].push_back(static_cast<int>(g));
    for (std::size_t b = 0; b < buffers_.size(); ++b)
      reductions[at(buffers_[b].last)].push_back(static_cast<int>(b));
    for (int s = 0; s < static_cast<int>(spans_.size()); ++s) {
      for (const int g : plan_.before[at(s)]) gather(g);
      for (const Coded& coded : coded_[at(s)]) decode(coded);
      for (; started < buffers_.size() && buffers_[started].first == s; ++started)
        reducer_.zero_gaps(program(), buffers_[started]);
      if (kind_of(s) == ActionKind::forward) reducer_.release_held(program());
      for (std::size_t i = spans_[at(s)].begin; i < spans_[at(s)].end; ++i) place(std::move(ops_[i]));
      if (kind_of(s) == ActionKind::backward) reducer_.release_held(program());
      for (const int g : releases[at(s)]) release(g);
      for (const int g : plan_.after[at(s)]) gather(g);
      for (const int b : reductions[at(s)]) reduce(buffers_[at(b)]);
    }
    for (std::size_t u = 0; u < result_.gradients.size(); ++u)
      reducer_.join_stages(program(), static_cast<int>(u), result_.gradients[u]);
    return std::move(result_);
  }

 private:
  Program& program() { return result_.program; }
  const ParameterShape& parameter(int p) const { return cut_.layout.parameters()[at(p)]; }
  /// Gathered codes, and the buffer `values` into which they are decoded.
  struct Coded {
    int gather, unit;
    TensorId own, codes, values;  ///< own: codes of this rank's shard, or no_tensor
  };

  /// Returns whether ops read a copy of the unit that lives for a while: gathered shards, decoded codes, or
  /// parameters whose home is another tier.
  bool gathers(int unit) const { return is_cut(unit) || away_[at(unit)] || rounds_to_codes(unit); }
  /// Returns whether sharding.gather_codes rounds a unit. Units that are kept as codes are gathered as such.
  bool rounds_to_codes(int unit) const {
    return options_.gather_bits > 0 && cut_.shards_parameters(unit) && !cut_.coded(unit) &&
           !cut_.units[at(unit)].form.any();
  }
  bool is_cut(int unit) const { return cut_.is_cut(unit) && cut_.shards_parameters(unit); }
  AxisSet inner_of(int unit) const { return inner_axes(flat(unit).shard_axes); }
  int inner_ranks(int unit) const { return cut_.at.mesh().size(inner_of(unit)); }

  void index_placeholders() {
    parameter_of_.assign(in_.program.tensors.size(), -1);
    gradient_of_.assign(in_.program.tensors.size(), {-1, -1});
    for (std::size_t p = 0; p < in_.parameters.size(); ++p) {
      parameter_of_[at(in_.parameters[p])] = static_cast<int>(p);
      for (std::size_t set = 0; set < in_.gradients.size(); ++set)
        gradient_of_[at(in_.gradients[set][p])] = {static_cast<int>(p), static_cast<int>(set)};
    }
  }

  void plan_parameters() {
    for (const UnitState& s : states_)
      away_.push_back(in_.program.tensor(s.computed.whole).tier != Tier::device);
    std::vector<std::vector<int>> unit_read(ops_.size());
    for (std::size_t i = 0; i < ops_.size(); ++i)
      for (const TensorId t : ops_[i].inputs) {
        if (parameter_of_[at(t)] < 0) continue;
        const int unit = parameter(parameter_of_[at(t)]).unit;
        if (gathers(unit)) unit_read[i].push_back(cut_.units[at(unit)].together);
      }
    spans_ = cut_into_spans(ops_, unit_read);
    const std::size_t units = cut_.units.size();
    std::vector<std::int64_t> elements(units, 0);  // of what is gathered at once
    members_.resize(units);
    for (std::size_t u = 0; u < units; ++u) {
      if (!gathers(static_cast<int>(u))) continue;
      const int set = cut_.units[u].together;
      elements[at(set)] += flat(static_cast<int>(u)).largest_elements;
      members_[at(set)].push_back(static_cast<int>(u));
    }
    plan_ = plan_gathers(spans_, elements, options_.gather);
    gathered_.resize(plan_.gathers.size());
    coded_.resize(spans_.size());
    secondary_.assign(units, no_tensor);
    gathers_left_.assign(units, 0);
    for (const Gather& g : plan_.gathers) ++gathers_left_[at(g.unit)];
    active_parameters_.resize(units);
    for (std::size_t u = 0; u < units; ++u) active_parameters_[u] = states_[u].computed.whole;
  }

  void plan_gradients() {
    for (int s = 0; s < static_cast<int>(spans_.size()); ++s)
      for (std::size_t i = spans_[at(s)].begin; i < spans_[at(s)].end; ++i)
        for (TensorId t : ops_[i].outputs) {
          const auto [parameter_index, set] = gradient_of_[at(t)];
          if (parameter_index < 0) continue;
          const int unit = parameter(parameter_index).unit;
          const auto [it, fresh] = buffer_of_.try_emplace({unit, set}, buffers_.size());
          if (fresh) buffers_.push_back({unit, s, s, micro_at(s), micro_at(s), false, no_tensor});
          buffers_[it->second].last = s;
          buffers_[it->second].last_micro = micro_at(s);
        }
    std::vector<GradientBuffer*> last_of(cut_.layout.units().size(), nullptr);
    for (GradientBuffer& b : buffers_) {
      b.tensor = add(in_.program, b.unit, "gradient.", cut_.precision.gradients, flat(b.unit).elements(),
                     Category::gradient);
      GradientBuffer*& last = last_of[at(b.unit)];
      if (!last || b.last > last->last) last = &b;
    }
    for (GradientBuffer* last : last_of)
      if (last) last->final = true;
    result_.gradients.resize(buffers_.empty() ? 0 : cut_.layout.units().size());
  }

  ActionKind kind_of(int span) const { return spans_[at(span)].action.kind; }
  int micro_at(int span) const { return spans_[at(span)].action.micro; }

  /// The unit's previous copy is no longer used: a use within reach would have extended it.
  void gather(int number) {
    const Gather& g = plan_.gathers[at(number)];
    for (const int unit : members_[at(g.unit)]) {
      const TensorId slice = states_[at(unit)].computed.slice;
      const TensorId buffer = add(program(), unit, "gathered.", program().tensor(slice).dtype,
                                  cut_.items(unit, flat(unit).elements()), Category::gathered);
      const Action action{ActionKind::gather, unit, micro_at(g.first)};
      if (rounds_to_codes(unit))
        coded_[at(g.first)].push_back(gather_codes(number, unit, buffer, action));
      else if (is_cut(unit))
        gather_shards(unit, slice, buffer, action);
      else
        fetch_whole(unit, buffer, action);
      gathered_[at(number)].push_back(buffer);
      active_parameters_[at(unit)] = buffer;
    }
  }

  /// Gathers shards, or what the neighbours keep of an earlier copy.
  void gather_shards(int unit, TensorId shard, TensorId buffer, Action action) {
    const TensorId secondary = secondary_[at(unit)];
    const bool near = secondary != no_tensor;
    emit_all_gather(program(), unit_name(unit), near ? secondary : shard, buffer,
                    near ? inner_of(unit) : flat(unit).shard_axes, action);
  }

  /// Encodes this rank's part of a unit and gathers the codes.
  Coded gather_codes(int number, int unit, TensorId buffer, Action action) {
    const TensorId all = add_codes(unit, "codes.", flat(unit).elements());
    TensorId own = no_tensor;
    if (secondary_[at(unit)] == no_tensor) {
      if (is_cut(unit)) own = add_codes(unit, "codes.shard.", flat(unit).shard_elements);
      const State& computed = states_[at(unit)].computed;
      add_op(program(), EncodeBlocks{options_.gather_bits}, unit_name(unit), action,
             {is_cut(unit) ? computed.slice : computed.whole}, {is_cut(unit) ? own : all});
    }
    if (is_cut(unit)) gather_shards(unit, own, all, action);
    return {number, unit, own, all, buffer};
  }
  TensorId add_codes(int unit, const char* what, std::int64_t elements) {
    const TensorId codes = add(program(), unit, what, DType::u8, elements, Category::gathered);
    program().tensor(codes).shape = {elements / code_quantum, coded_quantum_bytes(options_.gather_bits)};
    return codes;
  }

  /// Decodes a unit directly before its first use, so that one that is gathered ahead waits as codes.
  void decode(const Coded& coded) {
    const Gather& g = plan_.gathers[at(coded.gather)];
    const Action action{ActionKind::gather, coded.unit, micro_at(g.first)};
    add_op(program(), DecodeBlocks{options_.gather_bits}, unit_name(coded.unit), action, {coded.codes},
           {coded.values});
    // If the shard's codes ended with their last reader, ops that get their bytes would wait for the gather.
    if (coded.own != no_tensor) emit_release(program(), coded.own, action);
    if (gathers_left_[at(g.unit)] > 1) keep_secondary(coded.unit, coded.codes, action);
  }

  /// Of a unit that is whole, and at home elsewhere.
  void fetch_whole(int unit, TensorId buffer, Action action) {
    emit_copy(program(), unit_name(unit), states_[at(unit)].computed.whole, buffer, action);
    program().ops.back().stream = Stream::to_device;
  }

  void release(int number) {
    const Gather& g = plan_.gathers[at(number)];
    const bool again = --gathers_left_[at(g.unit)] > 0;
    for (std::size_t i = 0; i < members_[at(g.unit)].size(); ++i) {
      const int unit = members_[at(g.unit)][i];
      const TensorId gathered = gathered_[at(number)][i];
      const Action action{ActionKind::release, unit, micro_at(g.last)};
      if (again && !rounds_to_codes(unit)) keep_secondary(unit, gathered, action);
      emit_release(program(), gathered, action);
    }
  }

  /// This rank's part of what its neighbours together keep of a gathered unit.
  void keep_secondary(int unit, TensorId gathered, Action action) {
    const AxisSet inner = inner_of(unit);
    if (!options_.secondary_shards || inner_ranks(unit) == 1 || secondary_[at(unit)] != no_tensor) return;
    Tensor kept = program().tensor(gathered);
    kept.shape[0] /= inner_ranks(unit);
    Tensor view = kept;
    kept.name = "secondary." + unit_name(unit);
    secondary_[at(unit)] = program().add(std::move(kept));
    view.name += ".part";
    view.base = gathered;
    view.offset = cut_.at.index_in(inner) * view.bytes();
    const TensorId part = program().add(std::move(view));
    emit_copy(program(), unit_name(unit), part, secondary_[at(unit)], action);
  }

  void reduce(const GradientBuffer& buffer) {
    const ReducedGradient reduced = reducer_.reduce(program(), buffer);
    if (buffer.final) result_.gradients[at(buffer.unit)] = reduced;
  }

  /// Rebinds placeholders to views of the flat buffers and appends the op.
  void place(Op op) {
    for (TensorId& t : op.inputs) t = rebind(t);
    for (TensorId& t : op.outputs) t = rebind(t);
    program().ops.push_back(std::move(op));
  }

  TensorId rebind(TensorId t) {
    if (const int p = parameter_of_[at(t)]; p >= 0)
      return view(t, p, active_parameters_[at(parameter(p).unit)]);
    if (const auto [p, set] = gradient_of_[at(t)]; p >= 0)
      return view(t, p, buffers_[buffer_of_.at({parameter(p).unit, set})].tensor);
    return t;
  }

  TensorId view(TensorId placeholder, int p, TensorId base) {
    const auto [it, fresh] = views_.try_emplace({placeholder, base}, no_tensor);
    if (fresh) {
      Tensor t = program().tensor(placeholder);
      t.base = base;
      t.category = program().tensor(base).category;
      t.offset = (cut_.layout.segment_of(p).begin + cut_.computed[at(p)].begin) * size_of(t.dtype);
      if (const WeightForm& form = cut_.units[at(parameter(p).unit)].form; form.any()) {
        const Quanta quanta = quanta_of(form, cut_.layout.segment_of(p), cut_.computed[at(p)]);
        t.offset = quanta.begin;
        t.shape = {quanta.count};
      }
      it->second = program().add(std::move(t));
    }
    return it->second;
  }

  /// Of a unit's flat range.
  TensorId add(Program& to, int unit, const char* what, DType dtype, std::int64_t count,
               Category category) const {
    return to.add({.name = what + unit_name(unit),
                   .dtype = dtype,
                   .shape = {count},
                   .category = category,
                   .unit = unit});
  }

  const std::string& unit_name(int u) const { return units_[at(u)]; }
  const FlatUnit& flat(int u) const { return cut_.layout.unit(u); }

  Expanded in_;
  const Cut& cut_;
  const std::vector<UnitState>& states_;
  ShardOptions options_;
  std::vector<Op> ops_;
  std::vector<std::string> units_;
  std::vector<bool> away_;  ///< by unit: what is computed with is at home in another tier
  std::vector<int> parameter_of_;
  std::vector<std::pair<int, int>> gradient_of_;  ///< {parameter, number of the set}
  std::vector<Span> spans_;
  GatherPlan plan_;
  std::vector<std::vector<int>> members_;        ///< units by what is gathered at once (Gather::unit)
  std::vector<std::vector<TensorId>> gathered_;  ///< by gather: buffers of its members
  std::vector<std::vector<Coded>> coded_;        ///< by the span before which they are decoded
  std::vector<TensorId> secondary_;              ///< by unit
  std::vector<int> gathers_left_;                ///< by what is gathered at once
  std::vector<TensorId> active_parameters_;      ///< by unit: the buffer that ops read now
  std::vector<GradientBuffer> buffers_;          ///< by first
  std::map<std::pair<int, int>, std::size_t> buffer_of_;  ///< by {unit, number of the set}
  GradientReducer reducer_;
  std::map<std::pair<TensorId, TensorId>, TensorId> views_;
  Sharded result_;
};

}  // namespace

Sharded shard(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
              const ShardOptions& options) {
  return Sharder(std::move(expanded), cut, states, options).run();
}

}  // namespace ztrain::program
