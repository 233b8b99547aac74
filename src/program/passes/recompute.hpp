#pragma once
// Which activations are not kept from forward to backward, but made again there (expand.cpp puts the ops).

#include <algorithm>
#include <string>
#include <vector>

#include "model/graph.hpp"

namespace ztrain::program {

/// What forward does not keep: backward of a block first runs its forward again as far as needed (Chen et
/// al., "Training deep nets with sublinear memory cost", 2016; by pieces: Korthikanti et al., 2022).
struct Recompute {
  int every = 0;                  ///< of every k-th block only the inputs are kept; 0: of none
  std::vector<std::string> tags;  ///< what nodes with these tags (model::Node::piece) make is not kept
  int tiles = 1;                  ///< parts of the tokens for which feed-forwards are computed in turn

  bool drops(const model::Node& node) const {
    if (every > 0 && node.block % every == 1 % every) return true;
    return std::ranges::find(tags, node.piece) != tags.end();
  }
};

}  // namespace ztrain::program
