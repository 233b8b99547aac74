#pragma once
// Looks at the operands of ops while a Program runs.

#include <string>

#include "program/ir/program.hpp"

namespace ztrain::engine {

/// For ops that compute on the host and are complete when they are looked at. A communication may still be
/// under way then: what it brings is looked at before the first op that uses it.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  /// Before and after an op, counted as it is issued.
  virtual void look_before(program::OpId issue) = 0;
  virtual void look_after(program::OpId issue) = 0;
};

/// What an observer found.
struct FoundOp {
  program::OpId issue = -1;
  std::string
      text;  ///< "forward model.layers.1 micro 0: linear model.layers.1.mlp.up_proj (op 37)", and what
};

}  // namespace ztrain::engine
