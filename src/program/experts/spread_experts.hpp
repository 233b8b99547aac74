#pragma once
// Divides the experts of a mixture among the ranks of the axis `expert`, and of `tensor` if that axis has
// several ranks. Each rank has some experts whole, and rows of tokens go to the ranks that have their experts
// and come back.

#include "layout/mesh.hpp"
#include "model/graph.hpp"

namespace ztrain::program {

/// Adds the nodes that bring rows to experts and back, and slices the experts' parameters. Call it before
/// `place`. Each rank must have an equal part of the tokens. capacity: room for the rows that a rank sends to
/// another one, in even shares of its rows; 0: room for all. Changes nothing if the axis `expert` has one
/// rank. Throws Error if the experts of a layer do not divide.
void spread_experts(model::Graph& graph, const Coordinate& at, double capacity);

}  // namespace ztrain::program
