#pragma once
// Weights that are kept in 4 or 8 bits: where a part of a unit's codes lies, and what the ops that decode
// them have to know of it.

#include <vector>

#include "base/weight_form.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// Adds what belongs to each quantized weight beside its codes, fp32, as persistent tensors. By parameter;
/// none where it has none.
std::vector<TensorId> add_weight_statistics(Program& program, const model::Graph& graph);

/// Tells each Dequantize which elements of its weight it decodes.
void locate_codes(Program& program, const Cut& cut);

/// The part of a parameter that the rank at this place has.
PartOfMatrix part_of_matrix(const Layout& layout, int parameter, const Coordinate& at);

}  // namespace ztrain::program
