#pragma once
// Declares functions that the rules of a whole and of a split vocabulary share.

#include "kernels/head/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {

/// Forbids a way to ops: a node that has it becomes other ops.
inline bool never_allows(const Attributes&) {
  return false;
}

/// Emits the token weights under which a head's gradient is that of what was made of the node's losses of
/// tokens, and returns them.
inline TensorId emit_coefficients(Tape& t, const model::Node& n) {
  const TensorId weights = t.tensor(n.inputs[HeadTokens::token_weights]);
  const TensorId coefficients = t.temporary(n.name + ".coefficients", DType::f32, t.info(weights).shape);
  t.emit(HeadCoefficients{}, n.name, {t.gradient(n.outputs[HeadTokens::nll]), weights}, {coefficients});
  return coefficients;
}

}  // namespace ztrain::program
