#pragma once
// Rules of the check of placements for the scales of weights that are computed with as 8-bit codes.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernels/fp8/record.hpp"
#include "model/graph.hpp"
#include "program/verify/spread.hpp"

namespace ztrain::program {

/// The dim that the tensor axis cuts of the weight whose scales these are; -1: none.
inline int cut_dim_of_weight(const Program& program, const Tensor& scales) {
  for (const ParameterPlace& place : program.parameters)
    if (scales.name == model::scales_name(place.name)) return place.split;
  return -1;
}

/// Whether a tensor is the scales of a weight's rows, which lie with these where they are cut over the tensor
/// axis.
inline bool are_scales_of_cut_rows(const Program& program, const Tensor& tensor) {
  return tensor.category == Category::scalar && elements(tensor.shape) > 1 &&
         cut_dim_of_weight(program, tensor) == 0;
}

/// Sets what a rank finds in the weights of a unit; `found` is of the units before.
inline void note_largest(const std::vector<Spreads>& weights, Spreads& found) {
  for (const Spreads& weight : weights)
    for (std::size_t axis = 0; axis < found.size(); ++axis)
      found[axis] =
          weight[axis] == Spread::equal && found[axis] != Spread::shard ? Spread::equal : Spread::shard;
}

/// Returns what is wrong with fp8_scales of magnitudes that are spread so over the axis, or "". Over the
/// tensor axis magnitudes may be of this rank's parts, whose scales are not known before they are gathered.
inline std::string scales_fault(const Program& program, const Op& op, Axis axis, Spread found) {
  const bool of_parts = axis == Axis::tensor && found == Spread::shard;
  if (found != Spread::equal && !of_parts)
    return fmt::format("the largest magnitudes of {} were not gathered: '{}' is {}", op.name,
                       program.tensor(op.inputs[Fp8Scales::slots]).name, words_for(found));
  if (axis != Axis::tensor) return "";
  const std::vector<ScaledWeight> weights = record_of<Fp8Scales>(op.attributes).weights;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Tensor& made = program.tensor(op.outputs[i]);
    if ((weights[i].magnitudes == 1) == made.persistent)
      return fmt::format("'{}' is {}", made.name, made.persistent ? "magnitudes" : "scales of a part");
    if (made.persistent && cut_dim_of_weight(program, made) >= 0 && !are_scales_of_cut_rows(program, made) &&
        (of_parts || weights[i].parts != program.mesh[axis]))
      return fmt::format("the scales '{}' are those of a part of the weight alone", made.name);
  }
  return "";
}

/// The scales of its i-th weight.
inline Spread spread_of_scales(const Program& program, const Op& op, std::size_t i, Axis axis, Spread found) {
  if (axis != Axis::tensor) return Spread::equal;
  const Tensor& made = program.tensor(op.outputs[i]);
  return !made.persistent ? found : are_scales_of_cut_rows(program, made) ? Spread::rows : Spread::equal;
}

/// Inputs are dealt over the data axes; what else is kept is the same on every rank, but for some scales.
inline Spreads initial_spreads(const Program& program, const Tensor& tensor) {
  if (are_scales_of_cut_rows(program, tensor)) return equal_but(Axis::tensor, Spread::rows);
  return tensor.category == Category::input ? equal_but(token_axes, Spread::rows) : filled(Spread::equal);
}

}  // namespace ztrain::program
