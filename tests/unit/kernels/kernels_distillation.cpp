// The head of a student and of a teacher, over a vocabulary that is whole or split among ranks, against
// serial float64 references.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>

#include "kernels/distillation/distillation.hpp"
#include "kernels/distillation/likeliest_row.hpp"
#include "kernels/distillation/reference.hpp"
#include "tests/support/head_loss_case.hpp"
#include "tests/support/host_threads.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_distillation_test {
namespace {

using namespace ztrain::test;

constexpr std::int64_t rows = 33, vocabulary = 257, width = 20, k = 6;

/// Tokens whose words have rising shares; every fourth token has no teacher.
struct Taught {
  Array<std::int32_t> words;
  Array<float> shares;

  Taught() {
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t w = 0; w < k; ++w) {
        words.push_back(static_cast<std::int32_t>((t * 11 + w * 50 + 13) % vocabulary));
        shares.push_back(t % 4 == 2 ? 0.0F
                                    : static_cast<float>(2 * (w + 1)) / static_cast<float>(k * (k + 1)));
      }
  }
  Lesson lesson(double share) const { return {words.data(), shares.data(), k, share}; }
};

/// Ranks one after the other; begins: where each one's words begin, and the end.
template <class T>
struct Ranks {
  using A = acc_t<T>;
  const HeadLossCase<T>& c;
  std::vector<std::int64_t> begins;
  TestExec exec{};
  Array<LogitSums> sums = Array<LogitSums>(static_cast<std::size_t>((begins.size() - 1) * rows));
  std::vector<Array<A>> logits{};

  std::int64_t count() const { return std::ssize(begins) - 1; }
  Words own(std::int64_t r) const {
    const auto i = static_cast<std::size_t>(r);
    return {begins[i], begins[i + 1] - begins[i]};
  }
  HeadChunkShape shape(std::int64_t r) const { return {rows, width, own(r), 0, {}, 0}; }
  Matrix<const T> weight(std::int64_t r) const {
    return {c.weight.data() + own(r).first * width, own(r).count, width};
  }
  Matrix<A> logits_of(std::int64_t r) { return matrix(logits[static_cast<std::size_t>(r)], rows); }
  ChunkTokens tokens(const Lesson& lesson) const {
    return {{sums.data(), std::ssize(sums)}, view(c.targets), view(c.token_weights), {}, lesson};
  }

  void forward() {
    for (std::int64_t r = 0; r < count(); ++r) {
      logits.emplace_back(static_cast<std::size_t>(rows * head_loss_stride(own(r).count)),
                          std::numeric_limits<A>::quiet_NaN());
      Array<std::byte> workspace(static_cast<std::size_t>(
          gemm_workspace_bytes(rows, own(r).count, width, dtype_of<T>(), dtype_of<A>(), build_target())));
      HeadLogits<T>(*exec, shape(r))
          .run(*exec, matrix(c.h, rows), weight(r), view(c.targets), logits_of(r),
               {sums.data() + r * rows, rows}, view(workspace));
    }
  }
  Array<double> taught(const Lesson& lesson) {
    Array<double> all(static_cast<std::size_t>(count() * rows));
    for (std::int64_t r = 0; r < count(); ++r)
      teacher_sums<A>(*exec, logits_of(r), own(r), lesson, {all.data() + r * rows, rows});
    return all;
  }
};

/// What one token has in float64.
template <class T>
reference::Distilled token_of(const HeadLossCase<T>& c, const Taught& taught, std::int64_t t) {
  reference::Distilled d;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    double logit = 0;
    for (std::int64_t i = 0; i < width; ++i)
      logit += c.h64[static_cast<std::size_t>(t * width + i)] *
               c.weight64[static_cast<std::size_t>(v * width + i)];
    d.logits.push_back(logit);
  }
  d.target = c.targets[static_cast<std::size_t>(t)];
  for (std::int64_t at = t * k; at < (t + 1) * k; ++at) {
    d.words.push_back(taught.words[static_cast<std::size_t>(at)]);
    d.shares.push_back(static_cast<double>(taught.shares[static_cast<std::size_t>(at)]));
  }
  return d;
}

/// Sums over all tokens of the case.
struct Expected {
  double loss = 0, entropy = 0, divergence = 0, weight = 0;
  std::vector<double> grad_h = std::vector<double>(rows * width),
                      grad_weight = std::vector<double>(vocabulary * width);

  template <class T>
  Expected(const HeadLossCase<T>& c, const Taught& taught, double share) {
    for (std::int64_t t = 0; t < rows; ++t) {
      const double of_token = static_cast<double>(c.token_weights[static_cast<std::size_t>(t)]);
      if (of_token == 0) continue;
      const reference::Distilled d = token_of(c, taught, t);
      const double ce = reference::cross_entropy(d), kl = reference::divergence(d);
      double sum = 0;
      for (const double s : d.shares) sum += s;
      loss += of_token * ((1 - share * sum) * ce + share * kl);
      entropy += of_token * ce, divergence += of_token * kl, weight += of_token;
      const std::vector<double> gradient = reference::distilled_gradient(d, share);
      for (std::int64_t v = 0; v < vocabulary; ++v)
        for (std::int64_t i = 0; i < width; ++i) {
          const auto of_h = static_cast<std::size_t>(t * width + i),
                     of_weight = static_cast<std::size_t>(v * width + i);
          grad_h[of_h] += of_token * gradient[static_cast<std::size_t>(v)] * c.weight64[of_weight];
          grad_weight[of_weight] += of_token * gradient[static_cast<std::size_t>(v)] * c.h64[of_h];
        }
    }
  }
};

template <class P>
struct Distillation : ::testing::Test {};
TYPED_TEST_SUITE(Distillation, GradientPairs);

TYPED_TEST(Distillation, AgreesWithFloat64) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const HeadLossCase<T> c({rows, vocabulary, width});
  const Taught taught;
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, 257}, {0, 128, 257}, {0, 1, 97, 256, 257}})
    for (const double share : {0.3, 1.0}) {
      SCOPED_TRACE(::testing::Message() << begins.size() - 1 << " ranks, share " << share);
      const Lesson lesson = taught.lesson(share);
      const Expected expected(c, taught, share);
      Ranks<T> ranks{c, begins};
      ranks.forward();
      const Array<double> of_teacher = ranks.taught(lesson);
      Array<double> loss(2, -1), report(2, -1), terms(rows * distilled_terms, -1);
      for (const bool add : {false, true})  // a second time on top of the first
        distill_tokens(*ranks.exec, ranks.tokens(lesson), view(of_teacher),
                       {view(loss), view(report), view(terms), add});
      const double near = 2 * head_loss_error<T> * (expected.entropy + expected.divergence);
      EXPECT_NEAR(loss[0], 2 * expected.loss, near);
      EXPECT_EQ(loss[1], 2 * expected.weight);
      EXPECT_NEAR(report[0], 2 * expected.entropy, near);
      EXPECT_NEAR(report[1], 2 * expected.divergence, near);
      Shared<StepScalars> scalars;
      scalars->loss_scale = 1;
      Array<double> grad_h(rows * width, 0);
      Array<G> grad_weight(vocabulary * width, G(0.0F));
      for (std::int64_t r = 0; r < ranks.count(); ++r) {
        Array<T> part(rows * width, T(7));
        Array<std::byte> workspace(static_cast<std::size_t>(head_split_grad_bytes(
            rows, ranks.own(r).count, width, dtype_of<T>(), dtype_of<G>(), build_target())));
        HeadLogitsGrad<T, G>(*ranks.exec, ranks.shape(r), WeightGradient::write)
            .run(*ranks.exec, ranks.logits_of(r), ranks.tokens(lesson), matrix(c.h, rows), ranks.weight(r),
                 scalars.get(), matrix(part, rows),
                 Matrix<G>{grad_weight.data() + ranks.own(r).first * width, ranks.own(r).count, width},
                 view(workspace));
        for (std::size_t i = 0; i < part.size(); ++i) grad_h[i] += static_cast<double>(part[i]);
      }
      expect_close(grad_h, expected.grad_h, 2 * head_error<T>, "grad_h");
      expect_close(grad_weight, expected.grad_weight, head_error<T>, "grad_weight");
    }
}

TEST(Likeliest, AreThoseOfTheWholeVocabulary) {
  HeadLossCase<double> c({rows, vocabulary, width});
  // Equal words: of them the one with the lowest number is the likelier.
  std::copy_n(c.weight.data() + 7 * width, width, c.weight.data() + 200 * width);
  c.weight64 = doubles(c.weight);
  const Taught taught;
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, 257}, {0, 128, 257}, {0, 3, 97, 256, 257}}) {
    SCOPED_TRACE(::testing::Message() << begins.size() - 1 << " ranks");
    Ranks<double> ranks{c, begins};
    ranks.forward();
    const std::int64_t n = ranks.count();
    for (const std::int64_t wanted : {std::int64_t{2}, k, vocabulary}) {
      Array<std::int32_t> parts(static_cast<std::size_t>(n * rows * wanted), 7),
          words(static_cast<std::size_t>(rows * wanted), 7);
      Array<float> part_logs(parts.size(), 7), logs(words.size(), 7);
      for (std::int64_t r = 0; r < n; ++r) {
        const Likeliest<std::int32_t, float> to{parts.data() + r * rows * wanted,
                                                part_logs.data() + r * rows * wanted, rows, wanted};
        likeliest_words<double>(*ranks.exec, ranks.logits_of(r), ranks.own(r), view(ranks.sums), to);
        const std::vector<std::int32_t> by_cpu(to.words, to.words + rows * wanted);
        const Matrix<double> logits = ranks.logits_of(r);
        const LikeliestRow<double> row{
            {ranks.sums.data(), n, rows, {}}, logits.data, logits.cols, ranks.own(r), to};
        for (const std::int64_t i : {std::int64_t{0}, std::int64_t{5}})  // as a GPU's threads do
          run_threads(3, [&](const HostThreads& threads) { row.by(threads, i); });
        EXPECT_EQ(std::vector<std::int32_t>(to.words, to.words + rows * wanted), by_cpu);
      }
      join_likeliest(*ranks.exec, {parts.data(), part_logs.data(), n * rows, wanted},
                     {words.data(), logs.data(), rows, wanted});
      for (std::int64_t t = 0; t < rows; ++t) {
        const reference::Distilled d = token_of(c, taught, t);
        const std::vector<std::int64_t> expected = reference::by_likelihood(d.logits);
        for (std::int64_t w = 0; w < std::min(wanted, k); ++w) {
          const auto at = static_cast<std::size_t>(t * wanted + w);
          const auto word = static_cast<std::size_t>(expected[static_cast<std::size_t>(w)]);
          EXPECT_EQ(words[at], static_cast<std::int32_t>(word)) << "token " << t << ", word " << w;
          EXPECT_NEAR(logs[at], d.logits[word] - reference::log_of_sum(d.logits), 1e-5);
        }
        const auto own = std::span(words).subspan(static_cast<std::size_t>(t * wanted));
        EXPECT_GE(std::ranges::min(own.first(static_cast<std::size_t>(wanted))), 0) << "each word is found";
      }
    }
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_distillation_test
