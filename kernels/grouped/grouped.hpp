#pragma once
// Linear layers of rows that lie in groups, each with a weight of its own (kernels/grouped/record.hpp), and
// their gradients. A product is prepared once and run with offsets that differ from step to step: nothing
// is launched, allocated or compiled for the sizes of groups.

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

struct GroupedShape {
  std::int64_t groups = 0;
  std::int64_t rows = 0;  ///< of all groups, at most
  std::int64_t in = 0;
  std::int64_t out = 0;
};

struct GroupedOperands {
  const std::int32_t* offsets;  ///< [groups + 1], on the device
  const void* a;
  const void* b;
  const void* bias;  ///< null: none
  void* c;
  void* workspace;  ///< grouped_workspace_bytes()
};

class GroupedProduct {
 public:
  virtual ~GroupedProduct() = default;
  GroupedProduct() = default;
  GroupedProduct(const GroupedProduct&) = delete;
  GroupedProduct& operator=(const GroupedProduct&) = delete;

  /// Is called once, before the first run.
  virtual void prepare(Exec&) {}
  /// The bits of a group's results depend on the number of its rows, and not on other groups.
  virtual void run(Exec& exec, const GroupedOperands& operands) = 0;
  /// Returns a description for people; is called after prepare().
  virtual std::string implementation() const = 0;
  /// Returns whether a product of 16 bits leaves the device's tensor cores idle.
  virtual bool slow() const { return false; }
};

/// Makes the groups' products of this shape, in which m, or k if A is transposed, counts the rows of all
/// groups. B, bias and C, or C alone, have a part for each group. Types are make_gemm's.
std::unique_ptr<GroupedProduct> make_grouped_product(const GemmShape& shape, std::int64_t groups, DType in,
                                                     DType out);

/// Makes a linear layer. a: x [rows, in], b: W [groups, out, in], bias [groups, out], c: y [rows, out]. All
/// are of `type`.
inline std::unique_ptr<GroupedProduct> make_grouped_linear(const GroupedShape& s, DType type, bool bias) {
  return make_grouped_product({.trans_b = true, .m = s.rows, .n = s.out, .k = s.in, .bias = bias}, s.groups,
                              type, type);
}

/// Makes the gradient of x. a: dy [rows, out], b: W, c: dx [rows, in], = or += if accumulate.
inline std::unique_ptr<GroupedProduct> make_grouped_grad_input(const GroupedShape& s, DType type,
                                                               bool accumulate) {
  return make_grouped_product({.m = s.rows, .n = s.in, .k = s.out, .accumulate = accumulate}, s.groups, type,
                              type);
}

/// Makes the gradient of W. a: dy, b: x, c: dW [groups, out, in] of type `gradient`, = or += if accumulate.
/// A group without rows has zeros.
inline std::unique_ptr<GroupedProduct> make_grouped_grad_weight(const GroupedShape& s, DType type,
                                                                DType gradient, bool accumulate) {
  return make_grouped_product({.trans_a = true, .m = s.out, .n = s.in, .k = s.rows, .accumulate = accumulate},
                              s.groups, type, gradient);
}

/// db [groups, out] = column sums of each group's rows of dy, or += when accumulate; summed in a fixed order.
/// Types as linear_grad_bias has them.
template <class T, class G>
void grouped_grad_bias(Exec& exec, Matrix<const T> dy, const std::int32_t* offsets, Matrix<G> db,
                       bool accumulate);

}  // namespace ztrain::kernels
