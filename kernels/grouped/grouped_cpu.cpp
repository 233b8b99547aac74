// Multiplies the groups one after the other, each by a product of its own size.

#include <cstring>

#include "kernels/gemm/gemm_ragged.hpp"
#include "kernels/grouped/grouped.hpp"

namespace ztrain::kernels {
namespace {

/// Bytes from a row of an operand to the next, and from a group's part to the next.
struct Steps {
  std::int64_t row = 0, group = 0;
};

/// Multiplies each group by a product that can have any size.
class GroupedOnCpu : public GroupedProduct {
 public:
  GroupedOnCpu(const GemmShape& shape, std::int64_t groups, DType in, DType out)
      : shape_(complete(shape)), groups_(groups), gemm_(make_ragged_gemm(shape_, in, out)) {
    const std::int64_t bytes = size_of(in), matrix = shape_.n * size_of(out);
    a_.row = shape_.lda * bytes;
    if (shape_.trans_a) {
      b_.row = shape_.ldb * bytes;
      c_.group = shape_.m * matrix;
    } else {
      b_.group = shape_.k * shape_.n * bytes;
      c_.row = matrix;
    }
    bias_.group = shape_.n * bytes;
  }

  void prepare(Exec& exec) override { gemm_->prepare(exec); }

  void run(Exec& exec, const GroupedOperands& o) override {
    for (std::int64_t e = 0; e < groups_; ++e) {
      const std::int64_t begin = o.offsets[e], rows = o.offsets[e + 1] - begin;
      const auto at = [&](const void* data, const Steps& steps) {
        return static_cast<const std::byte*>(data) + begin * steps.row + e * steps.group;
      };
      auto* const c = const_cast<std::byte*>(at(o.c, c_));
      GemmShape s = shape_;
      (s.trans_a ? s.k : s.m) = rows;
      if (rows > 0)
        gemm_->run(exec, s, {at(o.a, a_), at(o.b, b_), s.bias ? at(o.bias, bias_) : nullptr, c, o.workspace});
      else if (s.trans_a && !s.accumulate)
        std::memset(c, 0, static_cast<std::size_t>(c_.group));
    }
  }

  std::string implementation() const override { return gemm_->implementation(); }

 private:
  GemmShape shape_;
  std::int64_t groups_;
  std::unique_ptr<RaggedGemm> gemm_;
  Steps a_, b_, bias_, c_;
};

}  // namespace

std::unique_ptr<GroupedProduct> make_grouped_product(const GemmShape& shape, std::int64_t groups, DType in,
                                                     DType out) {
  return std::make_unique<GroupedOnCpu>(shape, groups, in, out);
}

}  // namespace ztrain::kernels
