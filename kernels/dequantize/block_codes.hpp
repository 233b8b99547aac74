#pragma once
// Weights and gradients in codes of 4 or 8 bits while ranks exchange them. A code is a whole number, and an
// element is its code times the scale of its block of scale_block elements. A quantum of code_quantum
// elements is stored as its codes followed by its scales.

#include <cstdint>

#include "base/weight_form.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Elements [begin, begin + count) of each of `slots` equal slots. Each rank has one slot, node by node.
struct PartOfSlots {
  std::int64_t slots, begin, count, nodes = 1;
};

/// Writes the codes of a part of the slots of x: first of the slots of each node's first rank, then of each
/// node's second rank, and so on. With one node, or one rank on each node, this is the order of the slots.
/// begin and count are whole quanta. A scale is the block's largest magnitude divided by 127 (8 bits) or 7 (4
/// bits); a code is the whole number nearest to the element divided by the scale. A block with a value that
/// is not finite decodes to NaN. T is float, bf16, f16 or double; elements are rounded to fp32 first. Throws
/// Error if bits is another number, the elements are not whole quanta, or the slots do not have them.
template <class T>
void encode_blocks(Exec& exec, std::int64_t bits, Vector<const T> x, PartOfSlots part, std::uint8_t* codes);

/// The codes of the same elements from `ranks` ranks, one rank after another.
struct CodesOfRanks {
  const std::uint8_t* data;
  std::int64_t ranks = 1;
};

/// y = the sum over ranks of code * scale, added in rank order in fp32 and rounded once to T; with accumulate
/// the sum is added to what y holds. Throws Error as encode_blocks.
template <class T>
void decode_blocks(Exec& exec, std::int64_t bits, CodesOfRanks codes, bool accumulate, Vector<T> y);

}  // namespace ztrain::kernels
