#pragma once
// Overlap of tensor communication: a gather of tokens and the product that reads it, and a product and the
// reduce-scatter of its tokens, go part by part, so that what is sent and what is multiplied go on at the
// same time (Wang et al., "Overlap communication with dependent computation via decomposition in large deep
// learning models", 2023).
//
// A part is a rank's rows. In the place of a gather each rank sends its rows to every other; products take
// those that are there first. In the place of a reduce-scatter each part of the product is sent when it is
// made, to the rank whose rows they are, which adds up what it was sent, in the order of ranks and with one
// rounding: what the collective of the host does. Bytes and their sums are the same; a product of fewer rows
// may be rounded otherwise.
//
// Products of 8-bit codes: what they make is reduced beside them in the same way. What they read has one
// scale, which ranks agree on before they code their rows: these codes are sent, in half the bytes, and the
// transpose that backward reads is made of them behind the product. Where each row has a scale of its own,
// backward reads the rows as they were, and gathers stay as they are.

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Of communications over these axes that stand beside a product; others stay as they are. Before parameters
/// have places.
void overlap_products(Program& program, AxisSet axes);

}  // namespace ztrain::program
