#pragma once
// What the check of placements knows of the pipeline: who was told what all stages found, and which gradients
// of parameters that two stages have are sums of both.

#include <fmt/format.h>

#include <set>
#include <string>

#include "kernels/elementwise/record.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

class StagesCheck {
 public:
  explicit StagesCheck(const Program& program) : program_(program) {}

  /// After each op: notes what it gathers over the pipeline, receives and adds up. "", or what is wrong with
  /// it.
  std::string follow(const Op& op) {
    if (op.outputs.empty()) return "";
    const TensorId to = program_.storage(op.outputs[0]);
    if (op.comm.kind == CommKind::recv) {
      if (is_flat(to)) received_.insert(to);
      return "";
    }
    if (op.type == Add::op && is_flat(to)) return join(op);
    if (op.communicates() && op.comm.axes.contains(Axis::pipeline)) told_.insert(to);
    // A sum of both may be gathered, cast or copied; what is written otherwise is none.
    if (is_flat(to) && !op.inputs.empty() && in(joined_, op.inputs[0]))
      joined_.insert(to);
    else
      joined_.erase(to);
    return "";
  }

  /// Whether losses and norms of all stages are in it.
  bool told(TensorId t) const { return program_.mesh[Axis::pipeline] == 1 || in(told_, t); }
  /// "", or what is wrong with a gradient that the norm or the optimizer reads.
  std::string gradient_fault(const ParameterPlace& parameter, TensorId gradient) const {
    if (parameter.other_rank < 0 || in(joined_, gradient)) return "";
    return fmt::format("the gradient of {} is that of one of the two stages that use it", parameter.name);
  }

 private:
  bool in(const std::set<TensorId>& set, TensorId t) const { return set.contains(program_.storage(t)); }
  bool is_flat(TensorId t) const { return program_.tensor(program_.storage(t)).unit >= 0; }
  std::string join(const Op& op) {
    const TensorId own = op.inputs[Add::x], other = op.inputs[Add::addend];
    const std::string& name = program_.tensor(program_.storage(own)).name;
    if (in(joined_, own)) return fmt::format("the other stage's gradient is added to '{}' twice", name);
    if (!in(received_, other))
      return fmt::format("what is added to '{}' is not the other stage's gradient", name);
    joined_.insert(program_.storage(op.outputs[Add::sum]));
    return "";
  }

  const Program& program_;
  std::set<TensorId> told_;      ///< by tensor that holds bytes, as the others
  std::set<TensorId> received_;  ///< the other stage's gradients
  std::set<TensorId> joined_;    ///< sums of both
};

}  // namespace ztrain::program
