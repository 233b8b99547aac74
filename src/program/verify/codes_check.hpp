#pragma once
// What the check of placements knows of the scales of weights that are computed with as 8-bit codes.

#include <string>
#include <vector>

#include "program/ir/program.hpp"
#include "program/verify/placement_table.hpp"

namespace ztrain::program {

/// Whether a tensor is the scales of a weight's rows, which lie with these where they are cut over the tensor
/// axis.
bool are_scales_of_cut_rows(const Program& program, const Tensor& tensor);

/// Sets what a rank finds in the weights of a unit; `found` is of the units before.
void note_largest(const std::vector<Spreads>& weights, Spreads& found);

/// What is wrong with fp8_scales of magnitudes that are spread so over the axis; "": nothing. Over the tensor
/// axis they may be of this rank's parts, whose scales are not known before they are gathered.
std::string scales_fault(const Program& program, const Op& op, Axis axis, Spread found);
/// The scales of its i-th weight.
Spread spread_of_scales(const Program& program, const Op& op, std::size_t i, Axis axis, Spread found);

}  // namespace ztrain::program
