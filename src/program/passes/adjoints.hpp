#pragma once
// The adjoint rules of the op table: each emits the backward ops of one node.

#include "model/graph.hpp"

namespace ztrain::program {

class Tape;

void embedding_adjoint(Tape& tape, const model::Node& node);
void rmsnorm_adjoint(Tape& tape, const model::Node& node);
void linear_adjoint(Tape& tape, const model::Node& node);
void linear_fp8_adjoint(Tape& tape, const model::Node& node);  // adjoints_fp8.cpp
void rope_adjoint(Tape& tape, const model::Node& node);
void attention_adjoint(Tape& tape, const model::Node& node);
void swiglu_adjoint(Tape& tape, const model::Node& node);
void add_adjoint(Tape& tape, const model::Node& node);
void scale_adjoint(Tape& tape, const model::Node& node);
void dropout_adjoint(Tape& tape, const model::Node& node);
void copy_adjoint(Tape& tape, const model::Node& node);
void head_loss_adjoint(Tape& tape, const model::Node& node);

}  // namespace ztrain::program
