#pragma once
// Of which micro-batches and tokens of the step the ops of a rank are.

#include <cstddef>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// The ops from the first that computes at or behind op `from` on are of micro-batches so much later than
/// they were expanded as: they read their inputs and write their rows of the results.
void number_later(Program& program, std::size_t from, int micros, const std::vector<TensorId>& results);

/// Tells ops whose random numbers belong to tokens (attribute first_token) which tokens of the step they see.
/// A step's micro-batches are numbered as the data are dealt: over ranks, then over accumulation.
void number_tokens(Program& program);

}  // namespace ztrain::program
