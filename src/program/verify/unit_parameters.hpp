#pragma once
// Where the parameters of each unit lie in its flat range, for those who meet views of it.

#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/weight_form.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/signs/record.hpp"
#include "optim/ema.hpp"
#include "program/ir/program.hpp"
#include "program/verify/spread.hpp"

namespace ztrain::program {

/// A tensor of fewer elements than its unit's flat range is this rank's shard of it.
/// Codes have the shape [quanta, bytes of one].
inline void mark_shards(const Program& program, const Tensor& tensor, Spreads& spreads) {
  const std::int64_t all = program.unit_elements[at(tensor.unit)];
  const std::int64_t own = tensor.shape.size() == 2 ? tensor.shape[0] * code_quantum : elements(tensor.shape);
  if (own == all) return;
  const AxisSet axes = program.unit_cuts[at(tensor.unit)].shard_axes;
  const bool inner = own * program.mesh.size(axes) != all;
  for (int a = 0; a < axis_count; ++a)
    if (const auto axis = static_cast<Axis>(a); program.mesh[axis] > 1 && axes.contains(axis))
      spreads[at(a)] = inner && axis == Axis::shard ? Spread::inner_shard : Spread::shard;
}

/// Whether an op writes a flat range from one, element by element.
inline bool keeps_flat(const Op& op) {
  return op.type == Cast::op || op.type == Copy::op || op.type == Fp8Encode::op ||
         op.type == EncodeBlocks::op || op.type == DecodeBlocks::op || op.type == EncodeSigns::op ||
         op.type == DecodeSigns::op ||
         (op.type == OptimizerStep::op && record_of<OptimizerStep>(op.attributes).rule == optim::Ema::name);
}

class UnitParameters {
 public:
  /// Of Program::parameters.
  struct Range {
    std::size_t begin = 0, end = 0;
  };

  using Flat = std::vector<Spreads>;  ///< by parameter of a unit
  using Flats = std::map<TensorId, Flat>;

  explicit UnitParameters(const Program& program) : program_(program), of_unit_(program.units.size()) {
    for (std::size_t p = 0; p < program.parameters.size(); ++p) {
      const ParameterPlace& place = program.parameters[p];
      Range& range = of_unit_[at(place.unit)];
      if (range.end == 0) range.begin = p;
      range.end = p + 1;
      at_place_[{place.unit, place.begin}] = p;
    }
  }

  Range of(int unit) const { return of_unit_[at(unit)]; }
  /// The first parameter of the unit of this one.
  std::size_t first(std::size_t parameter) const { return of(program_.parameters[parameter].unit).begin; }

  /// By parameter: of parameters and what is kept beside them; of what has yet to be written, nothing.
  Flat initial(const Tensor& tensor, bool written) const {
    const Range unit = of(tensor.unit);
    Flat flat(unit.end - unit.begin, filled(written ? Spread::equal : Spread::unknown));
    if (!written) return flat;
    for (std::size_t p = unit.begin; p < unit.end; ++p) {
      Spreads& spreads = flat[p - unit.begin];
      const ParameterPlace& place = program_.parameters[p];
      for (int a = 0; a < axis_count; ++a)
        if (place.split_along(static_cast<Axis>(a))) spreads[at(a)] = cut_along(place.split);
      mark_shards(program_, tensor, spreads);
    }
    return flat;
  }

  /// The parameter whose values, or gradients, a view of a flat range is.
  std::size_t parameter_of(TensorId view) const {
    const Tensor& t = program_.tensor(view);
    const Tensor& base = program_.tensor(program_.storage(view));
    const auto it = at_place_.find({base.unit, t.offset / size_of(t.dtype)});
    ASSERT(it != at_place_.end(), "'{}' is no parameter of unit {}", t.name, base.unit);
    return it->second;
  }

  /// Whether an op copies gradients of some parameters between two flat ranges of their unit. Offload does so
  /// where the parameters of a unit get their gradients at different moments.
  bool carries_gradients(const Op& op) const {
    return op.type == Copy::op && is_whole_gradient(op.inputs[0]) && is_whole_gradient(op.outputs[0]);
  }
  /// Copies how these parameters are spread; the others stay.
  void carry_gradients(const Op& op, Flats& flats) const {
    const Tensor &from = program_.tensor(op.inputs[0]), &to = program_.tensor(op.outputs[0]);
    ASSERT(from.offset == to.offset, "'{}' is copied to the gradient of another parameter", from.name);
    const std::int64_t begin = to.offset / size_of(to.dtype), end = begin + elements(to.shape);
    const Flat& read = flats.at(program_.storage(op.inputs[0]));
    Flat& written = flats.at(program_.storage(op.outputs[0]));
    const Range unit = of(to.unit);
    for (std::size_t p = unit.begin; p < unit.end; ++p)
      if (const std::int64_t place = program_.parameters[p].begin; begin <= place && place < end)
        written[p - unit.begin] = read[p - unit.begin];
  }

 private:
  bool is_whole_gradient(TensorId t) const {
    const Tensor& storage = program_.tensor(program_.storage(t));
    return storage.category == Category::gradient && storage.unit >= 0 &&
           elements(storage.shape) == program_.unit_elements[at(storage.unit)];
  }

  const Program& program_;
  std::vector<Range> of_unit_;
  std::map<std::pair<int, std::int64_t>, std::size_t> at_place_;  ///< parameter by unit and place
};

}  // namespace ztrain::program
