#include "program/verify/codes_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/graph.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::program {

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
  if (found != 'E')
    return fmt::format("the largest magnitudes of {} were not gathered: '{}' is {}", op.name,
                       program.tensor(op.inputs[Fp8Scales::slots]).name, words_for(found));
  if (axis != Axis::tensor) return "";
  const int index = Coordinate(program.mesh, program.rank)[axis];
  for (const ScaledWeight& weight : record_of<Fp8Scales>(op.attributes).weights)
    if (weight.parts_read < weight.parts && weight.first_part != index)
      return fmt::format("the scales of {} are those of another rank's rows", op.name);
  return "";
}

Spread spread_of_scales(const Op& op, std::size_t i, Axis axis) {
  const ScaledWeight weight = record_of<Fp8Scales>(op.attributes).weights[i];
  return axis == Axis::tensor && weight.parts_read < weight.parts ? '0' : 'E';
}

}  // namespace ztrain::program
