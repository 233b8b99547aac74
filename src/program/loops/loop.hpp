#pragma once
// A step of a few micro-batches becomes one of many: what the schedule states to repeat is declared.

#include "model/graph.hpp"
#include "program/passes/expand.hpp"
#include "program/schedules/middle.hpp"

namespace ztrain::program {

/// Sets what is known of Program::repeat before later passes add ops: the schedule's numbers, and a ring for
/// the inputs of all micro-batches of the step. From the first op that computes behind the rank's body on,
/// ops get the micro-batches of the whole step: they read their own inputs, and write their own rows of the
/// results.
void declare_loop(Expanded& step, const model::Graph& graph, const Middle& middle, int rank);

/// Sets the constants of ops that differ by micro-batch (OpType::number).
void number_ops(Program& program);

}  // namespace ztrain::program
