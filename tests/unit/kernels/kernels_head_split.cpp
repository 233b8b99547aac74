// The head over a vocabulary that is split among ranks, and its exchange done by hand, against the serial
// float64 reference of the whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/head/head_split.hpp"
#include "tests/support/head_loss_case.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_head_split_test {
namespace {

using namespace ztrain::test;

template <class T, class G>
struct Result {
  Array<double> loss = Array<double>(2, -1);
  std::vector<double> grad_h;  ///< summed over the ranks
  Array<G> grad_weight;
};

/// Ranks one after the other; begins: where each one's words begin, and the end.
template <class T, class G>
class Ranks {
 public:
  Ranks(const HeadLossCase<T>& c, std::vector<std::int64_t> begins)
      : case_(c), begins_(std::move(begins)), tokens_(c.shape.tokens), width_(c.shape.width) {
    sums_.resize(static_cast<std::size_t>(ranks() * tokens_));
    for (std::int64_t r = 0; r < ranks(); ++r) forward(r);
  }

  Result<T, G> run(bool accumulate, double loss_scale) {
    Shared<StepScalars> scalars;
    scalars->loss_scale = loss_scale;
    Result<T, G> result;
    Array<double> nll(static_cast<std::size_t>(tokens_));
    head_split_loss(*exec_, known(), false, view(nll), view(result.loss));
    result.grad_h.assign(case_.h.size(), 0);
    result.grad_weight.assign(case_.weight.size(), G(0.25f));
    for (std::int64_t r = 0; r < ranks(); ++r) backward(r, accumulate, scalars.get(), result);
    return result;
  }

  ChunkTokens known() const {
    return {{sums_.data(), static_cast<std::int64_t>(sums_.size())},
            view(case_.targets),
            view(case_.token_weights),
            case_.shape.terms};
  }

 private:
  std::int64_t ranks() const { return std::ssize(begins_) - 1; }
  std::int64_t first(std::int64_t r) const { return begins_[static_cast<std::size_t>(r)]; }
  std::int64_t words(std::int64_t r) const { return first(r + 1) - first(r); }
  HeadChunkShape shape(std::int64_t r) const {
    return {tokens_,
            width_,
            {first(r), words(r)},
            case_.shape.soft_cap,
            case_.shape.terms,
            case_.shape.vocabulary};
  }
  Matrix<const T> weight(std::int64_t r) const {
    return {case_.weight.data() + first(r) * width_, words(r), width_};
  }
  static Array<std::byte> room(std::int64_t bytes) {
    return Array<std::byte>(static_cast<std::size_t>(bytes), std::byte{0xff});
  }

  void forward(std::int64_t r) {
    const std::int64_t stride = head_loss_stride(words(r));
    logits_.emplace_back(static_cast<std::size_t>(tokens_ * stride),
                         std::numeric_limits<acc_t<T>>::quiet_NaN());
    auto workspace = room(
        gemm_workspace_bytes(tokens_, words(r), width_, dtype_of<T>(), dtype_of<acc_t<T>>(), build_target()));
    HeadLogits<T>(*exec_, shape(r))
        .run(*exec_, matrix(case_.h, tokens_), weight(r), view(case_.targets),
             matrix(logits_.back(), tokens_), {sums_.data() + r * tokens_, tokens_}, view(workspace));
  }

  void backward(std::int64_t r, bool accumulate, const StepScalars* scalars, Result<T, G>& result) {
    Array<T> part(case_.h.size(), T(7));
    auto logits = logits_[static_cast<std::size_t>(r)];
    auto workspace =
        room(head_split_grad_bytes(tokens_, words(r), width_, dtype_of<T>(), dtype_of<G>(), build_target()));
    HeadLogitsGrad<T, G>(*exec_, shape(r), accumulate ? WeightGradient::add : WeightGradient::write)
        .run(*exec_, matrix(logits, tokens_), known(), matrix(case_.h, tokens_), weight(r), scalars,
             matrix(part, tokens_),
             Matrix<G>{result.grad_weight.data() + first(r) * width_, words(r), width_}, view(workspace));
    for (std::size_t i = 0; i < part.size(); ++i) result.grad_h[i] += static_cast<double>(part[i]);
  }

  const HeadLossCase<T>& case_;
  std::vector<std::int64_t> begins_;
  std::int64_t tokens_, width_;
  TestExec exec_;
  Array<LogitSums> sums_;
  std::vector<Array<acc_t<T>>> logits_;
};

template <class P>
struct HeadSplit : ::testing::Test {};
TYPED_TEST_SUITE(HeadSplit, GradientPairs);

TYPED_TEST(HeadSplit, AgreesWithTheReferenceOfTheWhole) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, 257}, {0, 128, 257}, {0, 1, 97, 256, 257}})
    for (const auto& [accumulate, cap, terms] : {std::tuple{false, 0.0, LossTerms{}},
                                                 {true, 0.0, LossTerms{}},
                                                 {true, 1.0, LossTerms{}},
                                                 {false, 0.0, LossTerms{0.1, 0.01}},
                                                 {true, 1.0, LossTerms{0.2, 0}},
                                                 {false, 1.0, LossTerms{0, 0.02}}}) {
      SCOPED_TRACE(::testing::Message() << begins.size() - 1 << " ranks, cap " << cap << ", smoothing "
                                        << terms.label_smoothing << ", z-loss " << terms.z_loss);
      const HeadLossShape shape{33, 257, 20, cap, terms};
      const HeadLossCase<T> c(shape);
      const double scale = accumulate ? 4 : 1;
      const Result<T, G> r = Ranks<T, G>(c, begins).run(accumulate, scale);
      auto expected = reference::head_loss(shape, c.input64());
      for (double& g : expected.grad_h) g *= scale;
      for (double& g : expected.grad_weight) g = g * scale + (accumulate ? 0.25 : 0);
      EXPECT_NEAR(r.loss[0], expected.loss, head_loss_error<T> * expected.loss);
      EXPECT_EQ(r.loss[1], expected.weight);
      // Each rank's part of the sum is rounded to T.
      Array<double> sum(r.grad_h.begin(), r.grad_h.end());
      expect_close(sum, expected.grad_h, scale * 2 * head_error<T>, "grad_h");
      expect_close(r.grad_weight, expected.grad_weight, scale * head_error<T>, "grad_weight");
    }
}

TYPED_TEST(HeadSplit, AddsTheLossOfLaterChunks) {
  using T = typename TypeParam::T;
  const HeadLossCase<T> c({33, 257, 20});
  const TestExec exec;
  Ranks<T, typename TypeParam::G> ranks(c, {0, 128, 257});
  Array<double> loss(2, -1), nll(33);
  head_split_loss(*exec, ranks.known(), false, view(nll), view(loss));
  const Array<double> once = loss;
  head_split_loss(*exec, ranks.known(), true, view(nll), view(loss));
  EXPECT_DOUBLE_EQ(loss[0], 2 * once[0]);
  EXPECT_DOUBLE_EQ(loss[1], 2 * once[1]);
}

TYPED_TEST(HeadSplit, ATargetThatNoRankHasShows) {
  using T = typename TypeParam::T;
  HeadLossCase<T> c({33, 257, 20});
  c.targets[0] = 257;
  const Result<T, typename TypeParam::G> r = Ranks<T, typename TypeParam::G>(c, {0, 128, 257}).run(false, 1);
  EXPECT_TRUE(std::isnan(r.loss[0]));
  EXPECT_TRUE(std::isnan(r.grad_h[0]));
  EXPECT_FALSE(std::isnan(r.grad_h[20])) << "the next token";
}

}  // namespace
}  // namespace ztrain::kernels::kernels_head_split_test
