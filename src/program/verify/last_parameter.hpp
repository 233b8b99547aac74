#pragma once
// For messages about placements: the last parameter that a value went through says where in the model it is.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/shape.hpp"
#include "program/ir/program.hpp"
#include "program/verify/unit_parameters.hpp"

namespace ztrain::program {

class LastParameter {
 public:
  LastParameter(const Program& program, const UnitParameters& units)
      : program_(program), units_(units), behind_(program.tensors.size(), -1) {}

  void follow(const Op& op) {
    int last = -1;
    for (const TensorId t : op.inputs)
      if (const int p = is_flat(t) ? static_cast<int>(units_.parameter_of(t)) : of(t); last < 0 || is_flat(t))
        last = p;
    for (const TensorId t : op.outputs)
      if (!is_flat(t)) behind_[at(program_.storage(t))] = last;
  }
  /// What a value becomes keeps it.
  void pass(TensorId from, TensorId to) { behind_[at(program_.storage(to))] = of(from); }

  /// "'name', behind parameter"
  std::string called(TensorId t) const {
    const std::string& name = program_.tensor(t).name;
    if (is_flat(t) || of(t) < 0) return fmt::format("'{}'", name);
    return fmt::format("'{}', behind {},", name, program_.parameters[at(of(t))].name);
  }

 private:
  bool is_flat(TensorId t) const { return program_.tensor(program_.storage(t)).unit >= 0; }
  int of(TensorId t) const { return behind_[at(program_.storage(t))]; }

  const Program& program_;
  const UnitParameters& units_;
  std::vector<int> behind_;  ///< by tensor that holds bytes: a parameter, or -1
};

}  // namespace ztrain::program
