#include "program/passes/reduce.hpp"

#include <algorithm>

#include "base/shape.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "layout/sum_group.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

const std::string& unit_name(const Program& program, int unit) {
  return program.units[at(unit)];
}

TensorId add_gradient(Program& program, int unit, const char* what, DType dtype, std::int64_t count) {
  return program.add({.name = what + unit_name(program, unit),
                      .dtype = dtype,
                      .shape = {count},
                      .category = Category::gradient,
                      .unit = unit});
}

/// What sums over ranks are kept in.
DType sum_type(const Precision& p) {
  if (p.gradients == DType::f16) return DType::f32;
  return size_of(p.reduce) > size_of(p.gradients) ? p.reduce : p.gradients;
}

}  // namespace

TensorId whole_gradient(Program& program, const Cut& cut, int unit, TensorId slice, Action action) {
  if (cut.strategy.optimizer_sharded || !cut.is_cut(unit)) return slice;
  const FlatUnit& flat = cut.layout.unit(unit);
  const TensorId whole =
      add_gradient(program, unit, "gradient.whole.", program.tensor(slice).dtype, flat.elements());
  emit_all_gather(program, unit_name(program, unit), slice, whole, flat.shard_axes, action);
  return whole;
}

void GradientReducer::zero_gaps(Program& program, const GradientBuffer& buffer) const {
  std::vector<Elements> gaps;
  std::int64_t end = 0;
  const auto gap_until = [&](std::int64_t begin) {
    if (begin > end) gaps.push_back({end, begin - end});
  };
  for (const Segment& s : flat(buffer.unit).segments) {
    const model::Rows& computed = cut_.computed[at(s.parameter)];
    gap_until(s.begin + computed.begin);
    end = s.begin + computed.end;
  }
  gap_until(flat(buffer.unit).elements());
  if (gaps.empty()) return;
  add_op(program, ZeroGaps{std::move(gaps)}, unit_name(program, buffer.unit),
         {ActionKind::reduce, buffer.unit, buffer.first_micro}, {}, {buffer.tensor});
}

ReducedGradient GradientReducer::reduce(Program& program, const GradientBuffer& buffer) {
  const Action action{ActionKind::reduce, buffer.unit, buffer.last_micro};
  const std::string name = unit_name(program, buffer.unit);
  TensorId& slice = accumulators_[at(buffer.unit)];
  const std::size_t first_op = program.ops.size();
  if (!cut_.is_cut(buffer.unit)) {
    slice = buffer.tensor;
    if (Codes codes; buffer.final && options_.code_bits > 0)
      sum_codes(program, buffer.unit, {slice, 0}, slice, false, codes, action);
    if (buffer.final && (!copies(buffer.unit).empty() || of_two_stages(buffer.unit)))
      slice = widened(program, buffer, action);
  } else {
    scatter(program, buffer, slice);
  }
  const AxisSet later = options_.sums_signs ? sign_axes(cut_, buffer.unit) : AxisSet(),
                axes = copies(buffer.unit).without(later);
  if (buffer.final && !axes.empty()) sum_over_copies(program, slice, axes, name, action);
  if (options_.overlap) hold(program, first_op, slice, buffer.unit);
  if (!buffer.final) return {};
  if (!later.empty() || of_two_stages(buffer.unit)) return {slice, no_tensor};
  return {slice, whole_gradient(program, cut_, buffer.unit, slice, action)};
}

/// Sums go over in the type that they are kept in: of rounded ones each stage would have another.
void GradientReducer::join_stages(Program& program, int unit, ReducedGradient& gradient) const {
  if (!of_two_stages(unit) || gradient.slice == no_tensor) return;
  const std::string name = unit_name(program, unit);
  const Tensor own = program.tensor(gradient.slice);
  const int other_rank = cut_.units[at(unit)].other_rank;
  const bool first = cut_.at[Axis::pipeline] < other_rank;
  const TensorId other = add_gradient(program, unit, "gradient.other_stage.", own.dtype, elements(own.shape));
  // Round the ring the first rank follows the last.
  emit_send(program, name, gradient.slice, Axis::pipeline, other_rank, {ActionKind::send, unit, -1});
  program.ops.back().stream = first ? Stream::to_previous : Stream::to_next;
  emit_recv(program, name, other, Axis::pipeline, other_rank, {ActionKind::recv, unit, -1});
  program.ops.back().stream = first ? Stream::from_previous : Stream::from_next;
  const Action action{ActionKind::reduce, unit, -1};
  add_op(program, Add{}, name, action, {gradient.slice, other}, {gradient.slice});
  gradient.whole = whole_gradient(program, cut_, unit, gradient.slice, action);
}

void GradientReducer::release_held(Program& program) {
  for (const Held& h : held_) emit_release(program, h.tensor, {ActionKind::release, h.unit, -1});
  held_.clear();
}

/// All that the ops from first_op on work on but the result.
void GradientReducer::hold(const Program& program, std::size_t first_op, TensorId slice, int unit) {
  for (std::size_t i = first_op; i < program.ops.size(); ++i)
    for (const auto* list : {&program.ops[i].inputs, &program.ops[i].outputs})
      for (const TensorId t : *list) {
        const TensorId storage = program.storage(t);
        const auto same = [&](const Held& h) { return h.tensor == storage; };
        if (storage != slice && std::none_of(held_.begin(), held_.end(), same))
          held_.push_back({storage, unit});
      }
}

/// Into a new accumulator where slice is none, otherwise adding to it.
void GradientReducer::scatter(Program& program, const GradientBuffer& buffer, TensorId& slice) const {
  const Action action{ActionKind::reduce, buffer.unit, buffer.last_micro};
  const std::string name = unit_name(program, buffer.unit);
  const Precision& p = cut_.precision;
  TensorId wire = buffer.tensor;
  const bool coded = options_.code_bits > 0;
  if (!coded && size_of(p.reduce) < size_of(p.gradients)) {
    wire = add_gradient(program, buffer.unit, "gradient.wire.", p.reduce, flat(buffer.unit).elements());
    emit_cast(program, name, buffer.tensor, wire, action);
  }
  const FlatUnit& unit = flat(buffer.unit);
  const std::int64_t count = unit.shard_elements;
  const bool first = slice == no_tensor, adds = !first;
  if (first) slice = add_gradient(program, buffer.unit, "gradient.shard.", sum_type(p), count);
  std::int64_t bucket =
      options_.bucket_elements > 0 ? std::max(quantum, options_.bucket_elements / unit.shards) : count;
  if (coded) bucket = round_up(bucket, code_quantum);
  TensorId workspace = no_tensor;  // the first bucket's, which is the largest: they follow one another
  Codes codes;
  for (std::int64_t begin = 0; begin < count; begin += bucket) {
    const std::int64_t n = std::min(bucket, count - begin);
    const TensorId out =
        n == count ? slice : program.add_view(program.tensor(slice).name + ".bucket", slice, begin, n);
    if (coded) {
      sum_codes(program, buffer.unit, {wire, begin}, out, adds, codes, action);
      continue;
    }
    emit_reduce_scatter(program, name, {wire, begin}, out, unit.shard_axes, adds, action, workspace);
    workspace = program.ops.back().outputs.back();
  }
}

/// Returns the axes of each hop: first those within nodes and then those between nodes, if every node holds
/// the same part of the axis shard; else one hop over all axes.
std::vector<AxisSet> GradientReducer::axes_of_hops(int unit) const {
  const AxisSet axes = flat(unit).shard_axes, near = inner_axes(axes);
  const SumGroup group = sum_group(cut_.at.mesh(), axes);
  const bool two = group.on_node > 1 && group.nodes() > 1 && cut_.at.mesh().size(near) == group.on_node;
  return two ? std::vector{near, AxisSet::outer(Axis::shard)} : std::vector{axes};
}

GradientReducer::Codes GradientReducer::add_codes(Program& program, int unit, std::int64_t count) const {
  Codes codes{count, {}};
  std::int64_t slots = flat(unit).shards;
  const auto add = [&](const char* what) {
    const TensorId t = add_gradient(program, unit, what, DType::u8, 0);
    program.tensor(t).shape = {slots * count / code_quantum, coded_quantum_bytes(options_.code_bits)};
    return t;
  };
  for (const AxisSet axes : axes_of_hops(unit)) {
    const int ranks = program.mesh.size(axes);
    Hop hop{axes, add("gradient.codes.")};
    hop.taken = ranks > 1 ? add("gradient.codes.of_ranks.") : hop.given;
    slots /= ranks;
    if (slots > 1) hop.sums = add_gradient(program, unit, "gradient.of_node.", DType::f32, slots * count);
    codes.hops.push_back(hop);
  }
  return codes;
}

/// Encodes this rank's gradient of each shard, sends the codes to the shards' owners, and adds up what this
/// rank receives for its own shard. With two hops the ranks of a node add up first, for the shards of all
/// nodes. Kernels are issued to the stream of their messages, so that backward waits for none of them.
void GradientReducer::sum_codes(Program& program, int unit, const Slots& from, TensorId to, bool accumulate,
                                Codes& codes, Action action) const {
  const std::string name = unit_name(program, unit);
  const std::int64_t bits = options_.code_bits, count = elements(program.tensor(to).shape);
  if (codes.count != count) codes = add_codes(program, unit, count);
  const auto behind = static_cast<OpId>(program.ops.size());
  EncodeBlocks encode{bits, flat(unit).shards, from.begin};
  if (codes.hops.size() > 1) encode.nodes = program.mesh.size(codes.hops.back().axes);
  TensorId values = from.full;
  for (const Hop& hop : codes.hops) {
    const bool last = hop.sums == no_tensor, adds = last && accumulate;
    add_op(program, encode, name, action, {values}, {hop.given});
    if (hop.taken != hop.given) emit_all_to_all(program, name, hop.given, hop.taken, hop.axes, action);
    values = last ? to : hop.sums;
    Op& sum = add_op(program, SumCodes{bits, hop.axes.bits(), adds}, name, action, {hop.taken}, {values});
    if (adds) sum.inputs.push_back(to);
    encode = {bits};
  }
  for (auto id = behind; flat(unit).shards > 1 && id < std::ssize(program.ops); ++id)
    program.op(id).stream = Stream::reduce;
}

/// The whole gradient in the type of its sum, where that is wider than its own.
TensorId GradientReducer::widened(Program& program, const GradientBuffer& buffer, Action action) const {
  const DType type = sum_type(cut_.precision);
  if (type == cut_.precision.gradients) return buffer.tensor;
  const std::string name = unit_name(program, buffer.unit);
  const TensorId wide =
      add_gradient(program, buffer.unit, "gradient.sum.", type, flat(buffer.unit).elements());
  emit_cast(program, name, buffer.tensor, wide, action);
  return wide;
}

/// In place; travels in the reduce dtype where that is narrower. A sum of fp16 gradients stays in fp32: over
/// many ranks it leaves the range of fp16.
void GradientReducer::sum_over_copies(Program& program, TensorId slice, AxisSet axes, const std::string& name,
                                      Action action) const {
  TensorId wire = slice;
  const Tensor& info = program.tensor(slice);
  const bool narrow =
      size_of(cut_.precision.reduce) < size_of(info.dtype) && cut_.precision.gradients != DType::f16;
  if (narrow) {
    wire =
        add_gradient(program, info.unit, "gradient.replicas.", cut_.precision.reduce, elements(info.shape));
    emit_cast(program, name, slice, wire, action);
  }
  emit_all_reduce(program, name, wire, wire, axes, action);
  if (wire != slice) emit_cast(program, name, wire, slice, action);
}

}  // namespace ztrain::program
