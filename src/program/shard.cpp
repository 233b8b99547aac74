#include "program/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "program/op_types.hpp"
#include "program/step_ops.hpp"

namespace ztrain::program {
namespace {

/// Consecutive ops of one action.
struct Span {
  Action action;
  std::size_t begin = 0, end = 0;  ///< ops
};

/// One gathered copy of a unit: from the span that first needs it to the one that last does.
struct Copy {
  int unit = 0;
  int first = 0, last = 0;  ///< spans
  TensorId buffer = no_tensor;
};

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

class Sharder {
 public:
  Sharder(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
          const ShardOptions& options)
      : in_(std::move(expanded)), cut_(cut), states_(states), options_(options) {
    ops_ = std::move(in_.program.ops);
    in_.program.ops.clear();
    units_ = in_.program.units;
    index_placeholders();
    cut_into_spans();
    gathers_ = cut.strategy.parameters_sharded && cut.shards() > 1;
    plan_copies();
    plan_gradients();
  }

  Sharded run() {
    result_.program = std::move(in_.program);
    active_copy_.resize(cut_.layout.units().size());
    active_buffer_.resize(cut_.layout.units().size());
    std::size_t gathered = 0, started = 0;
    std::vector<std::vector<std::size_t>> releases(spans_.size()), reductions(spans_.size());
    for (std::size_t c = 0; c < copies_.size(); ++c) releases[at(copies_[c].last)].push_back(c);
    for (std::size_t b = 0; b < buffers_.size(); ++b) reductions[at(buffers_[b].last)].push_back(b);
    for (int s = 0; s < static_cast<int>(spans_.size()); ++s) {
      for (; gathered < copies_.size() && copies_[gathered].first <= s + options_.prefetch; ++gathered)
        gather(copies_[gathered]);
      for (; started < buffers_.size() && buffers_[started].first == s; ++started) start(buffers_[started]);
      for (std::size_t i = spans_[at(s)].begin; i < spans_[at(s)].end; ++i) place(std::move(ops_[i]));
      for (std::size_t c : releases[at(s)]) release(copies_[c]);
      for (std::size_t b : reductions[at(s)]) reduce(buffers_[b]);
    }
    return std::move(result_);
  }

 private:
  /// A unit's flat gradient of one micro-batch (or of all).
  struct Buffer {
    int unit = 0;
    int micro = 0;
    int first = -1, last = -1;  ///< spans that write it
    bool final = true;          ///< the last reduction of its unit
    TensorId tensor = no_tensor;
  };

  Program& program() { return result_.program; }
  const ParameterShape& parameter(int p) const { return cut_.layout.parameters()[at(p)]; }

  void index_placeholders() {
    parameter_of_.assign(in_.program.tensors.size(), -1);
    gradient_of_.assign(in_.program.tensors.size(), {-1, -1});
    for (std::size_t p = 0; p < in_.parameters.size(); ++p) {
      parameter_of_[at(in_.parameters[p])] = static_cast<int>(p);
      for (std::size_t m = in_.gradients.size(); m-- > 0;)
        gradient_of_[at(in_.gradients[m][p])] = {static_cast<int>(p), static_cast<int>(m)};
    }
  }

  void cut_into_spans() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (spans_.empty() || !(spans_.back().action == ops_[i].action))
        spans_.push_back({ops_[i].action, i, i});
      spans_.back().end = i + 1;
    }
  }

  /// A copy is kept from one use to the next when the strategy keeps it to the end of backward, or when its
  /// next gather would already be due: what is still held is not gathered again.
  void plan_copies() {
    const int reach = std::max(1, options_.prefetch);
    std::map<int, std::size_t> open;  // unit -> its current copy
    for (int s = 0; s < static_cast<int>(spans_.size()); ++s)
      for (std::size_t i = spans_[at(s)].begin; i < spans_[at(s)].end; ++i)
        for (TensorId t : ops_[i].inputs) {
          if (parameter_of_[at(t)] < 0) continue;
          const int unit = parameter(parameter_of_[at(t)]).unit;
          const auto found = open.find(unit);
          const bool held = found != open.end() && (!cut_.strategy.reshard_after_forward ||
                                                    s - copies_[found->second].last <= reach);
          if (held) {
            copies_[found->second].last = s;
          } else {
            open[unit] = copies_.size();
            copies_.push_back({unit, s, s, no_tensor});
          }
        }
    if (!gathers_)
      for (Copy& copy : copies_) copy.buffer = states_[at(copy.unit)].parameters.whole;
  }

  void plan_gradients() {
    const int micros = static_cast<int>(in_.gradients.size());
    const bool shared = micros > 1 && in_.gradients[0] == in_.gradients[1];
    std::map<std::pair<int, int>, std::size_t> found;
    for (int s = 0; s < static_cast<int>(spans_.size()); ++s)
      for (std::size_t i = spans_[at(s)].begin; i < spans_[at(s)].end; ++i)
        for (TensorId t : ops_[i].outputs) {
          if (gradient_of_[at(t)].first < 0) continue;
          const int unit = parameter(gradient_of_[at(t)].first).unit,
                    micro = shared ? 0 : gradient_of_[at(t)].second;
          const auto [it, fresh] = found.try_emplace({unit, micro}, buffers_.size());
          if (fresh) buffers_.push_back({unit, micro, s, s, shared || micro == micros - 1, no_tensor});
          buffers_[it->second].last = s;
        }
    for (Buffer& b : buffers_)
      b.tensor = add(fmt::format("gradient.{}.{}", unit_name(b.unit), b.micro), cut_.precision.gradients,
                     flat(b.unit).elements(), Category::gradient, in_.program);
    accumulators_.assign(at(static_cast<int>(cut_.layout.units().size())), no_tensor);
    result_.gradients.resize(buffers_.empty() ? 0 : cut_.layout.units().size());
  }

  /// The previous copy of the unit, if any, is no longer used: a use within reach would have extended it.
  void gather(Copy& copy) {
    active_copy_[at(copy.unit)] = &copy;
    if (!gathers_) return;
    copy.buffer = add("gathered." + unit_name(copy.unit), cut_.precision.parameters,
                      flat(copy.unit).elements(), Category::gathered, program());
    emit_all_gather(program(), unit_name(copy.unit), states_[at(copy.unit)].parameters.slice, copy.buffer,
                    Cut::shard_axes(), {ActionKind::gather, copy.unit, spans_[at(copy.first)].action.micro});
  }

  void release(const Copy& copy) {
    if (gathers_)
      emit_release(program(), copy.buffer,
                   {ActionKind::release, copy.unit, spans_[at(copy.last)].action.micro});
  }

  void start(const Buffer& buffer) {
    active_buffer_[at(buffer.unit)] = &buffer;
    zero_gaps(buffer);
  }

  /// Padding between and after parameters is reduced with the rest: it must hold something, and that is zero.
  void zero_gaps(const Buffer& buffer) {
    std::vector<std::int64_t> gaps;
    std::int64_t end = 0;
    for (const Segment& s : flat(buffer.unit).segments) {
      if (s.begin > end) gaps.insert(gaps.end(), {end, s.begin - end});
      end = s.begin + s.count;
    }
    if (end < flat(buffer.unit).elements())
      gaps.insert(gaps.end(), {end, flat(buffer.unit).elements() - end});
    if (gaps.empty()) return;
    Op op;
    op.type = "zero_gaps";
    op.name = unit_name(buffer.unit);
    op.outputs = {buffer.tensor};
    op.attributes.set("pieces", std::move(gaps));
    op.action = {ActionKind::backward, buffer.unit, buffer.micro};
    program().ops.push_back(std::move(op));
  }

  /// Rebinds placeholders to views of the flat buffers and appends the op.
  void place(Op op) {
    for (TensorId& t : op.inputs) t = rebind(t);
    for (TensorId& t : op.outputs) t = rebind(t);
    program().ops.push_back(std::move(op));
  }

  TensorId rebind(TensorId t) {
    if (const int p = parameter_of_[at(t)]; p >= 0)
      return view(t, p, active_copy_[at(parameter(p).unit)]->buffer);
    if (const int p = gradient_of_[at(t)].first; p >= 0)
      return view(t, p, active_buffer_[at(parameter(p).unit)]->tensor);
    return t;
  }

  TensorId view(TensorId placeholder, int p, TensorId base) {
    const auto [it, fresh] = views_.try_emplace({placeholder, base}, no_tensor);
    if (fresh) {
      Tensor t = program().tensor(placeholder);
      t.base = base;
      t.category = program().tensor(base).category;
      t.offset = cut_.layout.segment_of(p).begin * size_of(t.dtype);
      it->second = program().add(std::move(t));
    }
    return it->second;
  }

  void reduce(const Buffer& buffer) {
    const Action action{ActionKind::reduce, buffer.unit, buffer.micro};
    const std::string name = unit_name(buffer.unit);
    TensorId& slice = accumulators_[at(buffer.unit)];
    if (cut_.shards() == 1) {
      slice = buffer.tensor;
    } else {
      const Precision& p = cut_.precision;
      TensorId wire = buffer.tensor;
      if (size_of(p.reduce) < size_of(p.gradients)) {
        wire = add("gradient.wire." + name, p.reduce, flat(buffer.unit).elements(), Category::gradient,
                   program());
        emit_cast(program(), name, buffer.tensor, wire, action);
      }
      const bool first = slice == no_tensor;
      if (first)
        slice =
            add("gradient.shard." + name, size_of(p.reduce) > size_of(p.gradients) ? p.reduce : p.gradients,
                flat(buffer.unit).shard_elements, Category::gradient, program());
      emit_reduce_scatter(program(), name, wire, slice, Cut::shard_axes(), !first, action);
    }
    if (!buffer.final) return;
    if (cut_.at.mesh()[Axis::replicate] > 1) sum_over_replicas(slice, name, action);
    TensorId whole = slice;
    if (!cut_.strategy.optimizer_sharded && cut_.shards() > 1) {
      whole = add("gradient.whole." + name, program().tensor(slice).dtype, flat(buffer.unit).elements(),
                  Category::gradient, program());
      emit_all_gather(program(), name, slice, whole, Cut::shard_axes(), action);
    }
    result_.gradients[at(buffer.unit)] = {slice, whole};
  }

  /// In place; travels in the reduce dtype where that is narrower.
  void sum_over_replicas(TensorId slice, const std::string& name, Action action) {
    TensorId wire = slice;
    const Tensor& info = program().tensor(slice);
    if (size_of(cut_.precision.reduce) < size_of(info.dtype)) {
      wire = add("gradient.replicas." + name, cut_.precision.reduce, elements(info.shape), Category::gradient,
                 program());
      emit_cast(program(), name, slice, wire, action);
    }
    emit_all_reduce(program(), name, wire, wire, Axis::replicate, action);
    if (wire != slice) emit_cast(program(), name, wire, slice, action);
  }

  TensorId add(std::string name, DType dtype, std::int64_t count, Category category, Program& to) {
    Tensor t;
    t.name = std::move(name);
    t.dtype = dtype;
    t.shape = {count};
    t.category = category;
    return to.add(std::move(t));
  }

  const std::string& unit_name(int u) const { return units_[at(u)]; }
  const FlatUnit& flat(int u) const { return cut_.layout.unit(u); }

  Expanded in_;
  const Cut& cut_;
  const std::vector<UnitState>& states_;
  ShardOptions options_;
  std::vector<Op> ops_;
  std::vector<std::string> units_;
  std::vector<int> parameter_of_;
  std::vector<std::pair<int, int>> gradient_of_;  ///< {parameter, micro}
  std::vector<Span> spans_;
  bool gathers_ = false;
  std::vector<Copy> copies_;  ///< in order of first
  std::vector<Buffer> buffers_;
  std::vector<const Copy*> active_copy_;      ///< by unit
  std::vector<const Buffer*> active_buffer_;  ///< by unit
  std::vector<TensorId> accumulators_;        ///< reduced shard by unit
  std::map<std::pair<TensorId, TensorId>, TensorId> views_;
  Sharded result_;
};

}  // namespace

Sharded shard(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
              const ShardOptions& options) {
  return Sharder(std::move(expanded), cut, states, options).run();
}

}  // namespace ztrain::program
