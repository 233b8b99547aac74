#include "program/passes/weight_codes.hpp"

#include <algorithm>

#include "base/shape.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

class WeightCodes {
 public:
  /// For the units that are cut over these axes.
  WeightCodes(Program& program, const Cut& cut, const JobTensors& tensors, CodedUnits which, AxisSet axes)
      : program_(program), cut_(cut), tensors_(tensors), action_(which.action), axes_(axes) {
    for (const FlatUnit& unit : cut.layout.units()) {
      const model::Unit& info = cut.units[at(unit.unit)];
      if (!info.coded || info.trainable != which.trained || unit.shard_axes != axes) continue;
      units_.push_back({unit.unit, slots_, slots_of(unit.unit)});
      slots_ += units_.back().slots;
      for (const Segment& s : unit.segments)
        if (is_in_parts(s.parameter)) in_parts_ += rows_of_scales(s.parameter);
    }
  }

  void run() {
    if (units_.empty()) return;
    const TensorId local = add("slots.local", slots_);
    for (const Unit& unit : units_) largest(unit, local);
    const TensorId all = steps_slices() ? gathered(local, "slots", axes_) : local;
    const TensorId own = in_parts_ > 0 ? add("largest.local", in_parts_) : no_tensor;
    for (const Unit& unit : units_) scales(unit, all, own);
    if (own != no_tensor) scales_of_parts(gathered(own, "largest", Axis::tensor));
    for (const Unit& unit : units_) encode(unit);
  }

 private:
  struct Unit {
    int unit;
    std::int64_t begin, slots;  ///< of its slots among a shard's
  };

  bool steps_slices() const { return cut_.strategy.optimizer_sharded && program_.mesh.size(axes_) > 1; }
  int shard_index() const { return cut_.at.index_in(axes_); }
  const TensorSlice& slice(int parameter) const { return cut_.layout.parameters()[at(parameter)].slice; }
  std::int64_t rows_of_scales(int parameter) const {
    return elements(program_.tensor(tensors_.scales[at(parameter)]).shape);
  }
  /// Whether ranks of the tensor axis, which need not have equal parts of it, have scales in common: not
  /// those of their own rows.
  bool is_in_parts(int parameter) const {
    const bool own_rows = rows_of_scales(parameter) > 1 && slice(parameter).dim == 0;
    return !slice(parameter).whole() && !own_rows;
  }
  TensorId gathered(TensorId local, const char* name, AxisSet axes) {
    const std::int64_t ranks = program_.mesh.size(axes);
    if (ranks == 1) return local;
    const TensorId all = add(name, elements(program_.tensor(local).shape) * ranks);
    emit_all_gather(program_, "scales of weights", local, all, axes, {action_, -1, -1});
    return all;
  }
  /// Elements of what one rank steps.
  std::int64_t stepped(int unit) const {
    const FlatUnit& flat = cut_.layout.unit(unit);
    return steps_slices() ? flat.shard_elements : flat.elements();
  }
  /// Elements that share a scale.
  std::int64_t row_of(int parameter) const {
    return cut_.layout.segment_of(parameter).count / rows_of_scales(parameter);
  }
  std::int64_t rows(const Piece& piece) const {
    const std::int64_t row = row_of(piece.parameter);
    return (piece.slice_begin + piece.count - 1) / row - piece.slice_begin / row + 1;
  }
  std::vector<Piece> pieces(int unit, std::int64_t shard) const {
    const std::int64_t count = stepped(unit);
    return cut_.layout.pieces(unit, shard * count, (shard + 1) * count);
  }
  /// Enough for every shard: sizes are those of all ranks, while each has operands for the pieces that it
  /// holds.
  template <class Of>
  std::int64_t most_of(int unit, const Of& of_piece) const {
    std::int64_t most = 0;
    for (std::int64_t shard = 0; shard * stepped(unit) < cut_.layout.unit(unit).elements(); ++shard) {
      std::int64_t sum = 0;
      for (const Piece& piece : pieces(unit, shard)) sum += of_piece(piece);
      most = std::max(most, sum);
    }
    return most;
  }
  std::int64_t slots_of(int unit) const {
    return most_of(unit, [&](const Piece& piece) { return rows(piece); });
  }
  std::int64_t workspace_of(int unit) const {  // a reservation is never empty
    return 64 + most_of(unit, [](const Piece& piece) { return fp8_weight_workspace_bytes(piece.count); });
  }
  std::vector<Piece> own_pieces(int unit) const { return pieces(unit, steps_slices() ? shard_index() : 0); }
  std::int64_t begin_of_own(int unit) const { return steps_slices() ? shard_index() * stepped(unit) : 0; }

  void largest(const Unit& unit, TensorId local) {
    Fp8Largest record;
    std::int64_t slot = 0;
    for (const Piece& p : own_pieces(unit.unit)) {
      record.pieces.push_back(
          {p.flat_begin - begin_of_own(unit.unit), p.count, p.slice_begin, row_of(p.parameter), slot});
      slot += rows(p);
    }
    const TensorId slots = program_.add_view("slots." + name(unit), local, unit.begin, unit.slots);
    const TensorId workspace =
        program_.add_workspace("workspace.slots." + name(unit), workspace_of(unit.unit));
    // Also for a shard of padding alone: its slots are sent.
    emit(record, unit, {state(unit).parameters.whole}, {slots, workspace});
  }

  /// Computes the scales of a unit's weights. For weights in parts it gives the largest magnitudes of this
  /// rank's part.
  void scales(const Unit& unit, TensorId all, TensorId own) {
    const std::int64_t shard = stepped(unit.unit);
    Fp8Scales record;
    std::vector<TensorId> outputs;
    for (const Segment& s : cut_.layout.unit(unit.unit).segments) {
      std::int64_t slot = 0;
      for (const Piece& before : pieces(unit.unit, s.begin / shard)) {
        if (before.parameter == s.parameter) break;
        slot += rows(before);
      }
      const bool in_parts = is_in_parts(s.parameter);
      record.weights.push_back(
          {unit.begin, slots_, slot, s.begin, row_of(s.parameter), shard, 1, in_parts ? 1 : 0});
      outputs.push_back(in_parts ? own_largest(s.parameter, own) : tensors_.scales[at(s.parameter)]);
    }
    emit(record, unit, {all}, std::move(outputs));
  }
  TensorId own_largest(int parameter, TensorId own) {
    const std::int64_t count = rows_of_scales(parameter), begin = found_;
    found_ += count;
    return program_.add_view("largest." + cut_.layout.parameters()[at(parameter)].name, own, begin, count);
  }

  /// A slot for each row of what the ranks have parts of, one part behind another.
  void scales_of_parts(TensorId all) {
    std::int64_t begin = 0;
    for (const Unit& unit : units_) {
      Fp8Scales record;
      std::vector<TensorId> outputs;
      for (const Segment& s : cut_.layout.unit(unit.unit).segments) {
        if (!is_in_parts(s.parameter)) continue;
        record.weights.push_back({begin, in_parts_, 0, 0, 1, in_parts_, program_.mesh[Axis::tensor]});
        outputs.push_back(tensors_.scales[at(s.parameter)]);
        begin += rows_of_scales(s.parameter);
      }
      if (!outputs.empty()) emit(record, unit, {all}, std::move(outputs));
    }
  }

  void encode(const Unit& unit) {
    const State& codes = state(unit).computed;
    const bool sliced = steps_slices();
    Fp8Encode record;
    std::vector<TensorId> inputs{state(unit).parameters.whole};
    for (const Piece& p : own_pieces(unit.unit)) {
      record.pieces.push_back({p.flat_begin - begin_of_own(unit.unit), p.count, p.slice_begin,
                               row_of(p.parameter), std::ssize(inputs)});
      inputs.push_back(tensors_.scales[at(p.parameter)]);
    }
    // Also for a shard of padding alone: its codes are gathered.
    emit(record, unit, std::move(inputs), {sliced ? codes.slice : codes.whole});
    if (sliced && codes.slice != codes.whole)
      emit_all_gather(program_, name(unit), codes.slice, codes.whole, axes_, {ActionKind::gather, -1, -1});
  }

  template <class Record>
  void emit(const Record& record, const Unit& unit, std::vector<TensorId> inputs,
            std::vector<TensorId> outputs) {
    add_op(program_, record, name(unit), {action_, unit.unit, -1}, std::move(inputs), std::move(outputs));
  }
  TensorId add(const char* name, std::int64_t count) {
    return program_.add({.name = name, .shape = {count}, .category = Category::scalar});
  }
  const UnitState& state(const Unit& unit) const { return tensors_.units[at(unit.unit)]; }
  const std::string& name(const Unit& unit) const { return program_.units[at(unit.unit)]; }

  Program& program_;
  const Cut& cut_;
  const JobTensors& tensors_;
  ActionKind action_;
  AxisSet axes_;
  std::vector<Unit> units_;
  std::int64_t slots_ = 0;     ///< of one shard, over all units
  std::int64_t in_parts_ = 0;  ///< scales of weights that the ranks of the tensor axis have parts of
  std::int64_t found_ = 0;     ///< of these, so far
};

}  // namespace

std::vector<TensorId> add_weight_scales(Program& program, const model::Graph& graph) {
  std::vector<TensorId> scales;
  for (const model::Parameter& p : graph.parameters) {
    scales.push_back(no_tensor);
    if (!p.coded() || p.elsewhere) continue;
    const model::Value& v = graph.value(p.scales);
    scales.back() = program.add(persistent(v.name, v.dtype, v.shape, Category::scalar));
  }
  return scales;
}

void append_weight_codes(Program& program, const Cut& cut, const JobTensors& tensors, CodedUnits which) {
  for (const AxisSet axes : axes_of_shards(cut.layout)) WeightCodes(program, cut, tensors, which, axes).run();
}

}  // namespace ztrain::program
