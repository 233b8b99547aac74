#pragma once
// What is repeated beside its copy, op by op: whether both do the same, and which tensor stands for which.

#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

class Copies {
 public:
  explicit Copies(const Program& program);

  /// "" where each time from the first that is like the body (Repeat::alike) to its copy does the same.
  std::string compare();

  /// By tensor: the one that the next time names instead; itself for what both name.
  const std::vector<TensorId>& images() const { return images_; }
  /// By tensor: whether the body names it, or a view of it.
  const std::vector<bool>& named() const { return named_; }
  const std::vector<AttributeStep>& attributes() const { return attributes_; }

  static bool same_kind(const Tensor& a, const Tensor& b);
  /// "tokens" of "tokens.17"
  static std::string_view stem(const std::string& name);

 private:
  bool same_op(OpId id);
  bool same_action(const Action& a, const Action& b) const;
  bool same_attributes(OpId id, const Attributes& a, const Attributes& b);
  bool same_operands(const std::vector<TensorId>& a, const std::vector<TensorId>& b, bool written);
  bool same_tensor(TensorId a, TensorId b);
  bool same_kept(TensorId a, TensorId b);
  bool same_offset(const Tensor& x, const Tensor& y) const;

  const Program& program_;
  const Repeat& repeat_;
  std::vector<TensorId> images_, origins_;
  std::vector<bool> named_;
  std::vector<AttributeStep> attributes_;
  /// Of the two that are compared: by how many times the copy is the later one, and whether the other is the
  /// body.
  int apart_ = 1;
  bool in_body_ = false;
};

}  // namespace ztrain::program
