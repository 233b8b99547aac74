#pragma once
// Products of one input become one where what reads them takes them side by side: queries, keys and values
// of an attention, gate and up of a gated activation. One product of joined weights fills a processor better
// than several narrow ones, reads its input once, and its gradients are sums that need no rounding between.
// As Megatron-LM's and TransformerEngine's packed projections, but the parameters keep their own names: their
// weights only lie one after the other in their unit.

#include "model/graph.hpp"

namespace ztrain::program {

/// Rewrites the graph, and marks the parameters whose weights must stay neighbours (Parameter::joined);
/// before group_parameters. Left as they are: layers with adapters, those computed with 8-bit codes, queries
/// and keys that are normalised head by head, and weights that are not neighbours, not all trained alike, or
/// whose sizes leave gaps between them (quantum, layout.hpp).
void join_products(model::Graph& graph);

}  // namespace ztrain::program
