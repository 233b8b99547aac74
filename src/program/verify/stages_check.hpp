#pragma once
// What the check of placements knows of the pipeline: who was told what all stages found, and which gradients
// of parameters that two stages have are sums of both.

#include <set>
#include <string>

#include "program/ir/program.hpp"

namespace ztrain::program {

class StagesCheck {
 public:
  explicit StagesCheck(const Program& program) : program_(program) {}

  /// After each op: notes what it gathers over the pipeline, receives and adds up. "", or what is wrong with
  /// it.
  std::string follow(const Op& op);

  /// Whether losses and norms of all stages are in it.
  bool told(TensorId t) const;
  /// "", or what is wrong with a gradient that the norm or the optimizer reads.
  std::string gradient_fault(const ParameterPlace& parameter, TensorId gradient) const;

 private:
  bool in(const std::set<TensorId>& set, TensorId t) const { return set.contains(program_.storage(t)); }
  bool is_flat(TensorId t) const { return program_.tensor(program_.storage(t)).unit >= 0; }
  std::string join(const Op& op);

  const Program& program_;
  std::set<TensorId> told_;      ///< by tensor that holds bytes, as the others
  std::set<TensorId> received_;  ///< the other stage's gradients
  std::set<TensorId> joined_;    ///< sums of both
};

}  // namespace ztrain::program
