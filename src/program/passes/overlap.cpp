#include "program/passes/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/linear/record.hpp"
#include "layout/comm_cost.hpp"
#include "model/fp8.hpp"
#include "program/ir/order.hpp"
#include "program/ops/emit.hpp"

namespace ztrain::program {
namespace {

/// A product of values whose rows are those of its operand 0.
bool is_of_values(const Op& op) {
  return op.type == Linear::op || op.type == LinearGradInput::op;
}
/// The same, of 8-bit codes.
bool is_of_codes(const Op& op) {
  return op.type == LinearFp8::op || op.type == LinearFp8GradInput::op;
}

/// How many operands, from the first, have the product's rows: of codes with a scale for each row both.
std::size_t operands_by_rows(const Op& op) {
  const bool scaled =
      (op.type == LinearFp8::op && record_of<LinearFp8>(op.attributes).rowwise) ||
      (op.type == LinearFp8GradInput::op && record_of<LinearFp8GradInput>(op.attributes).rowwise);
  return scaled ? 2 : 1;
}

/// Makes codes with one scale of all its input.
bool codes_whole(const Op& op) {
  if (op.type != Fp8Quantize::op && op.type != Fp8QuantizeBoth::op) return false;
  const auto record = record_of<Quantization>(op.attributes);
  return !record.rowwise && record.found == 0 && op.inputs.size() == 1;
}

class Overlap {
 public:
  Overlap(Program& program, AxisSet axes)
      : program_(program),
        axes_(axes),
        ranks_(program.mesh.size(axes)),
        own_(Coordinate(program.mesh, program.rank).index_in(axes)),
        group_(sum_group(program.mesh, axes)),
        of_(program.ops.size()),
        accesses_(program.tensors.size()) {}

  void run() {
    std::vector<Op> ops = std::move(program_.ops);
    program_.ops.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) note(ops[i], static_cast<OpId>(i));
    for (std::size_t i = 0; i < ops.size(); ++i) find_pair(ops, static_cast<OpId>(i));
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (of_[i].role == Role::sends_codes) send_codes(ops[i], ops[at(of_[i].coded)]);
      emit(std::move(ops[i]), of_[i]);
    }
  }

 private:
  /// What becomes of an op.
  enum class Role : std::uint8_t {
    stays,
    sends_rows,
    sends_codes,
    codes,
    takes_parts,
    sends_parts,
    adds_parts
  };
  struct Place {
    Role role = Role::stays;
    /// takes_parts: what is being sent, where nobody reads it later; sends_parts, adds_parts: what the others
    /// send.
    TensorId sent = no_tensor;
    OpId coded = no_op;  ///< sends_codes: what makes codes of what is gathered
  };
  void note(const Op& op, OpId id) {
    for (const std::vector<TensorId>* operands : {&op.inputs, &op.outputs})
      for (const TensorId t : *operands) accesses_[at(program_.storage(t))].push_back(id);
  }

  /// A communication of rows, and the product beside it.
  void find_pair(const std::vector<Op>& ops, OpId id) {
    const Op& op = ops[at(id)];
    if (op.comm.axes != axes_ || op.stream != Stream::exchange) return;
    if (op.comm.kind == CommKind::all_gather) {
      const TensorId rows = op.outputs[AllGather::full];
      const OpId reader = next(rows, id);
      if (reader != no_op && codes_whole(ops[at(reader)]) && next(rows, reader) == no_op)
        return find_product_of_codes(ops, id, reader);
      if (!may_split(ops, reader) || ops[at(reader)].inputs[0] != rows) return;
      of_[at(id)] = {Role::sends_rows};
      const TensorId sent = op.inputs[AllGather::shard];
      of_[at(reader)] = {Role::takes_parts, next(sent, id) == no_op ? sent : no_tensor};
    } else if (op.comm.kind == CommKind::reduce_scatter && !accumulates(op)) {
      const TensorId rows = op.inputs[ReduceScatter::full];
      if (group_.by_node(program_.tensor(rows).dtype)) return;  // its parts are sums of several ranks'
      const OpId maker = before(rows, id);
      if (!may_split(ops, maker) || ops[at(maker)].outputs[0] != rows) return;
      const TensorId others = add_others(rows, ops[at(maker)]);
      of_[at(id)] = {Role::adds_parts, others};
      of_[at(maker)] = {Role::sends_parts, others};
    }
  }

  /// A gather, what makes codes of it, and the product beside that.
  void find_product_of_codes(const std::vector<Op>& ops, OpId gather, OpId coded) {
    const TensorId codes = ops[at(coded)].outputs[Fp8Quantize::codes];
    const OpId reader = next(codes, coded);
    if (!may_split(ops, reader) || ops[at(reader)].inputs[0] != codes) return;
    of_[at(gather)] = {Role::sends_codes, no_tensor, coded};
    of_[at(coded)] = {Role::codes};
    of_[at(reader)] = {Role::takes_parts};
  }

  /// The op that is the next to touch a tensor, or the last before; no_op: none.
  OpId next(TensorId t, OpId id) const {
    const std::vector<OpId>& all = accesses_[at(t)];
    const auto it = std::ranges::upper_bound(all, id);
    return it == all.end() ? no_op : *it;
  }
  OpId before(TensorId t, OpId id) const {
    const std::vector<OpId>& all = accesses_[at(t)];
    const auto it = std::ranges::lower_bound(all, id);
    return it == all.begin() ? no_op : *std::prev(it);
  }
  bool may_split(const std::vector<Op>& ops, OpId id) const {
    if (id == no_op || of_[at(id)].role != Role::stays) return false;
    const Op& op = ops[at(id)];
    // Where a row has a scale of its own, the library wants the first of a part's to be aligned.
    const std::int64_t multiple = is_of_values(op) ? 1 : is_of_codes(op) ? model::fp8_multiple : 0;
    return multiple > 0 && program_.tensor(op.inputs[0]).shape[0] % (multiple * ranks_) == 0;
  }

  void emit(Op op, const Place& place) {
    switch (place.role) {
      case Role::stays:
        program_.ops.push_back(std::move(op));
        return;
      case Role::sends_rows:
        return send_rows(op, op.inputs[AllGather::shard], op.outputs[AllGather::full]);
      case Role::sends_codes:
        return;
      case Role::codes: {
        const TensorId codes = op.outputs[Fp8Quantize::codes];
        coded_.emplace(codes, std::move(op));
        return;
      }
      case Role::takes_parts:
        for (int k = 0; k < ranks_; ++k) add_part(op, rank_before(k));
        // What the parts write must not wait for the bytes of what is being sent.
        if (place.sent != no_tensor) emit_release(program_, place.sent, op.action);
        return transpose_codes(op.inputs[0]);
      case Role::sends_parts:
        for (int k = 1; k < ranks_; ++k) send_part(op, k, place.sent);
        return add_part(op, own_);
      case Role::adds_parts:
        return add_up(op, place.sent);
    }
  }

  int rank_before(int by) const { return (own_ + ranks_ - by) % ranks_; }
  int rank_behind(int by) const { return (own_ + by) % ranks_; }

  /// Of this rank's rows, with the scale of all.
  void send_codes(const Op& gather, const Op& coded) {
    const TensorId codes = coded.outputs[Fp8Quantize::codes];
    Tensor own = program_.tensor(codes);
    own.name = fmt::format("{}.own", own.name);
    own.shape[0] /= ranks_;
    const TensorId from = own_codes_[codes] = add(std::move(own));
    const std::size_t first = program_.ops.size();
    emit_quantize(
        program_, coded.name, Fp8Quantize{{.axes = axes_.bits()}},
        {{gather.inputs[AllGather::shard]}, {from, coded.outputs[Fp8Quantize::scales]}, coded.action});
    for (std::size_t i = first; i < program_.ops.size(); ++i)
      if (!program_.ops[i].communicates()) complete(program_, program_.ops[i]);
    send_rows(gather, from, codes);
  }

  /// Behind the product, if these are codes whose rows were sent: nobody reads their transpose before.
  void transpose_codes(TensorId codes) {
    const auto it = coded_.find(codes);
    if (it == coded_.end()) return;
    const Op coded = std::move(it->second);
    coded_.erase(it);
    emit_release(program_, own_codes_.at(codes), coded.action);
    if (coded.type != Fp8QuantizeBoth::op) return;
    add_op(program_, Fp8Transpose{}, coded.name, coded.action, {codes},
           {coded.outputs[Fp8QuantizeBoth::transposed]});
  }

  /// To each rank, which puts them among those of the others.
  void send_rows(const Op& gather, TensorId from, TensorId to) {
    for (int k = 1; k < ranks_; ++k) shift(gather, from, rows_of(to, ranks_, rank_before(k)), k);
    add_op(program_, OwnRows{{axes_.bits()}}, gather.name, gather.action, {from},
           {rows_of(to, ranks_, own_)});
  }

  void send_part(const Op& product, int by, TensorId others) {
    add_part(product, rank_behind(by));
    const TensorId made = rows_of(product.outputs[0], ranks_, rank_behind(by));
    shift(product, made, rows_of(others, ranks_ - 1, exchange_slot(rank_before(by), own_)), by);
  }

  void add_up(const Op& reduction, TensorId others) {
    const TensorId own = rows_of(reduction.inputs[ReduceScatter::full], ranks_, own_);
    add_op(program_, SumOfRanks{{axes_.bits()}}, reduction.name, reduction.action, {own, others},
           {reduction.outputs[ReduceScatter::shard]});
  }

  /// The rows of one rank.
  void add_part(const Op& product, int rank) {
    Op part = product;
    const TensorId out = product.outputs[0];
    if (program_.tensor(part.outputs.back()).category == Category::workspace) part.outputs.pop_back();
    for (TensorId& t : part.inputs)
      if (t == out) t = rows_of(out, ranks_, rank);
    for (std::size_t i = 0; i < operands_by_rows(product); ++i)
      part.inputs[i] = rows_of(product.inputs[i], ranks_, rank);
    part.outputs[0] = rows_of(out, ranks_, rank);
    complete(program_, part);
    program_.ops.push_back(std::move(part));
  }

  void shift(const Op& beside, TensorId from, TensorId to, int by) {
    emit_shift(program_, beside.name, from, to, axes_, by, beside.action);
    move_to_exchange(program_);
  }

  TensorId add_others(TensorId rows, const Op& maker) {
    Tensor t = program_.tensor(rows);
    t.name = fmt::format("{}.others.{}", maker.name, maker.action.micro);
    t.shape[0] = t.shape[0] / ranks_ * (ranks_ - 1);
    return add(std::move(t));
  }

  /// One of so many equal parts of a tensor's rows.
  TensorId rows_of(TensorId whole, int parts, int part) {
    std::vector<TensorId>& views = views_[at(whole)];
    if (views.empty()) {
      for (int p = 0; p < parts; ++p) {
        Tensor t = program_.tensor(whole);
        t.name = fmt::format("{}.rows{}", t.name, p);
        t.shape[0] /= parts;
        t.offset += p * t.bytes();
        t.base = program_.storage(whole);
        views.push_back(add(std::move(t)));
      }
    }
    ASSERT(std::ssize(views) == parts, "'{}' is cut into {} parts, and into {}", program_.tensor(whole).name,
           views.size(), parts);
    return views[at(part)];
  }
  TensorId add(Tensor t) { return program_.add(std::move(t)); }

  Program& program_;
  AxisSet axes_;
  int ranks_, own_;
  SumGroup group_;
  std::vector<Place> of_;                               ///< by op
  std::vector<std::vector<OpId>> accesses_;             ///< by tensor with storage: who touches it
  std::map<std::size_t, std::vector<TensorId>> views_;  ///< by tensor
  std::map<TensorId, TensorId> own_codes_;              ///< by codes of all rows: those of this rank's
  std::map<TensorId, Op> coded_;  ///< by codes: what made them, until they are transposed
};

}  // namespace

void overlap_products(Program& program, AxisSet axes) {
  if (program.mesh.size(axes) > 1) Overlap(program, axes).run();
}

}  // namespace ztrain::program
