#pragma once
// Ops that make 8-bit codes with scales over the parts of several ranks: what the adjoint of products of
// codes and passes over Programs share.

#include "program/ops/op_type.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::program {

/// Appends a quantisation whose scales go over the parts of all ranks of its axes, which tell each other
/// their largest magnitudes: one for each scale. Workspaces are to be added (complete).
void emit_quantize(Program& program, const std::string& name, const Fp8Quantize& record, Operands operands);
void emit_quantize(Program& program, const std::string& name, const Fp8QuantizeBoth& record,
                   Operands operands);

}  // namespace ztrain::program
