#pragma once
// Overlap of tensor communication: a gather of tokens and the product that reads it, and a product and the
// reduce-scatter of its tokens, go part by part, so that what is sent and what is multiplied go on at the
// same time (Wang et al., "Overlap communication with dependent computation via decomposition in large deep
// learning models", 2023).
//
// A part is a rank's rows. In the place of a gather each rank sends its rows to every other; in that of a
// reduce-scatter each part of the product is sent, as soon as it is made, to the rank whose rows they are.
// Bytes and their sums are the same; a product of fewer rows may be rounded otherwise. Of 8-bit codes with
// one scale, on which ranks agree before they code their rows, the codes are sent, and their transpose is
// made behind the product. Where each row has a scale, backward reads the rows as they were: gathers stay.

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Of communications over these axes that stand beside a product; others stay as they are. Before parameters
/// have places.
void overlap_products(Program& program, AxisSet axes);

}  // namespace ztrain::program
