#include "program/verify/stages_check.hpp"

#include <fmt/format.h>

#include "program/ops/step_records.hpp"

namespace ztrain::program {

std::string StagesCheck::follow(const Op& op) {
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

std::string StagesCheck::join(const Op& op) {
  const TensorId own = op.inputs[Add::x], other = op.inputs[Add::addend];
  const std::string& name = program_.tensor(program_.storage(own)).name;
  if (in(joined_, own)) return fmt::format("the other stage's gradient is added to '{}' twice", name);
  if (!in(received_, other))
    return fmt::format("what is added to '{}' is not the other stage's gradient", name);
  joined_.insert(program_.storage(op.outputs[Add::sum]));
  return "";
}

bool StagesCheck::told(TensorId t) const {
  return program_.mesh[Axis::pipeline] == 1 || in(told_, t);
}

std::string StagesCheck::gradient_fault(const ParameterPlace& parameter, TensorId gradient) const {
  if (parameter.other_rank < 0 || in(joined_, gradient)) return "";
  return fmt::format("the gradient of {} is that of one of the two stages that use it", parameter.name);
}

}  // namespace ztrain::program
