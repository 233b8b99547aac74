#pragma once
// Nodes whose attributes speak of whole operands, made to speak of a rank's part (OpType::fit): called by the
// placing pass when a node's operands are placed and cut.

#include <vector>

#include "layout/mesh.hpp"
#include "model/graph.hpp"
#include "program/ir/placement.hpp"

namespace ztrain::program {

/// What a rank has of a node, over the axes that are being placed.
struct PartOfNode {
  struct Operand {
    Placement at;
    Shape shape, whole;              ///< the rank's part, and before these axes cut it
    std::vector<model::Rows> parts;  ///< of the dim that is split: every rank's
  };
  std::vector<Operand> inputs;
  Placement output;  ///< the first
  AxisSet axes;
  int index = 0;  ///< the rank's among the ranks of the axes

  bool is_split(std::size_t input, int dim) const { return inputs[input].at == split(dim); }
  const model::Rows& own(std::size_t input) const {
    return inputs[input].parts[static_cast<std::size_t>(index)];
  }
};

/// Heads; and of a part of the queries, which they are.
void fit_attention(model::Node& node, const PartOfNode& part);
/// The rows of the table that this rank has.
void fit_embedding(model::Node& node, const PartOfNode& part);
/// Over a split vocabulary it becomes head_loss_split.
void fit_head_loss(model::Node& node, const PartOfNode& part);
/// The bias of a sum is added by one rank.
void fit_linear(model::Node& node, const PartOfNode& part);
/// The tokens that this rank has, which masks are drawn by.
void fit_dropout(model::Node& node, const PartOfNode& part);

}  // namespace ztrain::program
