#pragma once
// Ops that the rules of attention emit for nodes that have sinks.

#include "kernels/attention/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {

/// Whether the last input of a node of attention is its sinks.
inline bool has_sinks(const model::Node& node, const Attention& attention) {
  return node.inputs.size() > attention.sinks();
}

/// Returns the constants of the ops that know nothing of the sinks.
inline Attention without_sinks(Attention attention) {
  attention.first_sink = 0;
  return attention;
}

/// Sets first_sink for a part of the heads. attention.heads is still the number of heads of all parts. Sinks
/// may be cut as the heads are, or be whole.
void fit_sinks(Attention& attention, const PartOfNode& part);

// attention: the node's constants.

/// Appends the op behind the ops that write a node's o and lse; nothing for a node without sinks.
void emit_sinks(Program& program, const Operands& operands, const model::Node& node,
                const Attention& attention);

/// Emits the gradient of a node's sinks, if it is wanted. tensor(o) and tensor(lse) are those with sinks,
/// from which the backward of attention computes the other gradients.
void sinks_adjoint(Tape& tape, const model::Node& node, const Attention& attention);

}  // namespace ztrain::program
