#pragma once
// Linear layers of a family's blocks, with their parameters.

#include <string>
#include <utility>
#include <vector>

#include "model/builder.hpp"

namespace ztrain::model {

/// A linear layer before it is applied: parameters lie in the order in which they are made.
struct Projection {
  std::string name;
  ValueId weight, bias = -1;
};

/// Makes and applies linear layers, whose weights are drawn with one standard deviation.
class Projections {
 public:
  Projections(Builder& builder, double init_std) : b_(builder), init_std_(init_std) {}

  /// Makes the layers of one input, each with a name and a width of its output. All weights come first, then
  /// all biases, so that the products can be joined (program/passes/join_products.hpp).
  std::vector<Projection> make(ValueId x, const std::vector<std::pair<std::string, std::int64_t>>& outputs,
                               bool bias) {
    std::vector<Projection> made;
    for (const auto& [name, out] : outputs)
      made.push_back({name, b_.parameter(name + ".weight", {out, b_.shape(x)[1]}, Init::normal, init_std_)});
    if (bias)
      for (Projection& p : made)
        p.bias = b_.parameter(p.name + ".bias", {b_.shape(p.weight)[0]}, Init::zeros);
    return made;
  }

  ValueId apply(const Projection& p, ValueId x) { return b_.linear(p.name, x, p.weight, p.bias); }

  /// Makes and applies one layer.
  ValueId project(const std::string& name, ValueId x, std::int64_t out, bool bias) {
    return apply(make(x, {{name, out}}, bias)[0], x);
  }

 private:
  Builder& b_;
  double init_std_;
};

}  // namespace ztrain::model
