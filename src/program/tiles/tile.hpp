#pragma once
// Computes the feed-forward of a block for one part of the tokens after another: the tiled feed-forward of
// ALST (Bekman and others, "Arctic Long Sequence Training", 2025).

#include "model/graph.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

/// Replaces the ops of each block's feed-forward by the same ops for `parts` equal parts of the rank's
/// tokens, one part after another. The feed-forward begins with the norm before it and ends with the block.
/// Recomputation and backward of a part follow one another, and gradients of weights are added up over the
/// parts. graph: of the rank. Memory falls only if recomputation drops what the feed-forward makes, because
/// rows that another op reads stay whole. Sums over parts are rounded otherwise than sums over all tokens.
/// Throws Error if the parts do not divide the tokens, or if an op does not work for a part alone.
void tile_feed_forward(Program& program, const model::Graph& graph, int parts);

}  // namespace ztrain::program
