#include "program/verify/codes_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/graph.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::program {
namespace {

/// Whether ranks of the tensor axis have parts of the weight that these are scales of.
bool is_cut(const Program& program, const Tensor& scales) {
  return std::ranges::any_of(program.parameters, [&](const ParameterPlace& place) {
    return place.split >= 0 && scales.name == model::scales_name(place.name);
  });
}

}  // namespace

bool are_scales_of_cut_rows(const Program& program, const Tensor& tensor) {
  return tensor.category == Category::scalar && elements(tensor.shape) > 1 &&
         std::ranges::any_of(program.parameters, [&](const ParameterPlace& place) {
           return place.split == 0 && tensor.name == model::scales_name(place.name);
         });
}

void note_largest(const std::vector<Spreads>& weights, Spreads& found) {
  for (const Spreads& weight : weights)
    for (std::size_t axis = 0; axis < found.size(); ++axis)
      found[axis] = weight[axis] == 'E' && found[axis] != 'F' ? 'E' : 'F';
}

std::string scales_fault(const Program& program, const Op& op, Axis axis, Spread found) {
  const bool of_parts = axis == Axis::tensor && found == 'F';
  if (found != 'E' && !of_parts)
    return fmt::format("the largest magnitudes of {} were not gathered: '{}' is {}", op.name,
                       program.tensor(op.inputs[Fp8Scales::slots]).name, words_for(found));
  if (axis != Axis::tensor) return "";
  const std::vector<ScaledWeight> weights = record_of<Fp8Scales>(op.attributes).weights;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Tensor& made = program.tensor(op.outputs[i]);
    if ((weights[i].magnitudes == 1) == made.persistent)
      return fmt::format("'{}' is {}", made.name, made.persistent ? "magnitudes" : "scales of a part");
    if (made.persistent && is_cut(program, made) && !are_scales_of_cut_rows(program, made) &&
        (of_parts || weights[i].parts != program.mesh[axis]))
      return fmt::format("the scales '{}' are those of a part of the weight alone", made.name);
  }
  return "";
}

Spread spread_of_scales(const Program& program, const Op& op, std::size_t i, Axis axis, Spread found) {
  if (axis != Axis::tensor) return 'E';
  const Tensor& made = program.tensor(op.outputs[i]);
  return !made.persistent ? found : are_scales_of_cut_rows(program, made) ? '0' : 'E';
}

}  // namespace ztrain::program
