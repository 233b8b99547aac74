#pragma once
// Placements of a forward graph's values over the axes of the mesh. Of the tensor axis: from a table of its
// parameters alone, the pass infers where every other value is, inserts the conversions between what one op
// gives and the next one takes, and cuts shapes to what this rank holds. Of the context axis likewise, from
// the inputs, of which each rank has its part of the tokens. Of the axes over which whole sequences are dealt
// nothing is converted but parameters. What a parameter's gradient has to be summed over follows.

#include <vector>

#include "layout/mesh.hpp"
#include "layout/token_order.hpp"
#include "model/graph.hpp"
#include "model/tensor_plan.hpp"

namespace ztrain::program {

/// In which the ranks of the context axis have the tokens of a micro-batch: that which gives all ranks the
/// same work, at any number of sequences; in order where heads of all tokens are exchanged.
TokenOrder token_order(const MeshShape& mesh, model::ContextMethod context, int multiple = 1);

/// How values lie on the ranks of a stage, by value; empty: each is the same on all ranks.
struct Spreading {
  std::vector<AxisSet> split_over;    ///< axes over whose ranks its tokens are split
  std::vector<AxisSet> partial_over;  ///< axes over whose ranks it is a part of a sum
};

struct Placed : Spreading {
  /// By parameter: the axes over whose ranks its gradient is a sum. Over the others it is the same on every
  /// rank, or of a part that is the rank's own.
  std::vector<AxisSet> summed_over;
};

/// Call it before anything reads shapes of the graph, which is of all tokens of a micro-batch. Throws Error
/// naming the op, or the parameter, that cannot be placed.
Placed place(model::Graph& graph, const Coordinate& at, const model::TensorPlan& plan,
             model::ContextMethod context = model::ContextMethod::gather);

/// Of the tensor axis alone: for graphs whose tokens are the same on all other axes too.
void place_over_tensor(model::Graph& graph, const Coordinate& at, const model::TensorPlan& plan);

}  // namespace ztrain::program
