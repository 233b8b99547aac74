// What GPUs run for norms and losses, by threads of the host: against float64, and against what CPUs run.

#include <gtest/gtest.h>

#include <limits>

#include "kernels/elementwise/reference.hpp"
#include "kernels/head/head_loss_threads.hpp"
#include "kernels/norm/reference.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "kernels/norm/rmsnorm_threads.hpp"
#include "tests/support/host_threads.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_threads_test {
namespace {

using namespace ztrain::test;

constexpr double eps = 1e-5;

template <class T>
using Values = decltype(random<T>(0, 0));

template <class T>
constexpr double acc_error = std::is_same_v<T, double> ? 1e-12 : 1e-5;

template <class T>
struct ThreadsKernels : ::testing::Test {
  TestExec exec;
};
TYPED_TEST_SUITE(ThreadsKernels, FloatTypes);

/// Rows of d, and what is made of them.
template <class T>
struct Norm {
  std::int64_t rows, d;
  Values<T> x, addend, weight, dy, y, sum, dx;
  Values<acc_t<T>> rstd, partials;

  Norm(std::int64_t rows_, std::int64_t d_)
      : rows(rows_),
        d(d_),
        x(random<T>(rows * d, 1)),
        addend(random<T>(rows * d, 2)),
        weight(random<T>(d, 3)),
        dy(random<T>(rows * d, 4)),
        y(x.size()),
        sum(x.size()),
        dx(x.size()),
        rstd(static_cast<std::size_t>(rows)),
        partials(static_cast<std::size_t>(2 * d), std::numeric_limits<acc_t<T>>::quiet_NaN()) {}

  NormArrays<T> arrays() {
    return {x.data(),
            addend.data(),
            weight.data(),
            sum.data(),
            y.data(),
            rstd.data(),
            d,
            static_cast<acc_t<T>>(eps)};
  }
  NormGradientArrays<T> gradient_arrays(bool with_addend) {
    return {x.data(),
            weight.data(),
            rstd.data(),
            dy.data(),
            with_addend ? addend.data() : nullptr,
            dx.data(),
            rows,
            d};
  }

  template <bool whole, int packs, bool with_addend>
  void forward(int threads) {
    run_threads(threads, [&](const HostThreads& t) {
      for (std::int64_t row = 0; row < rows; ++row)
        norm_row<NormForm::plain, with_addend, whole, packs>(t, arrays(), row);
    });
  }
  /// The odd rows, then the even ones.
  template <bool whole, int packs>
  void backward(int threads, bool with_addend) {
    run_threads(threads, [&](const HostThreads& t) {
      for (const std::int64_t odd : {1, 0})
        norm_gradient_rows<NormForm::plain, whole, packs>(t, gradient_arrays(with_addend), odd, rows, 2,
                                                          partials.data() + odd * d);
    });
  }
};

/// whole, packs and threads: rows that the threads hold, that they hold in part, and that end within a pack.
template <class T, class F>
void for_norms(const F& f) {
  const auto of = [&]<bool whole, int packs>(std::int64_t d, int threads) {
    SCOPED_TRACE(testing::Message() << "d " << d << ", " << threads << " threads of " << packs << " packs");
    Norm<T> norm(7, d);
    f.template operator()<whole, packs>(norm, threads);
  };
  of.template operator()<true, 1>(8, 8);
  of.template operator()<true, 1>(128, 16);
  of.template operator()<true, 2>(488, 32);
  of.template operator()<true, 4>(1024, 32);
  of.template operator()<true, 2>(1000, 4);
  of.template operator()<false, 1>(257, 32);
  of.template operator()<false, 1>(1003, 8);
  of.template operator()<false, 1>(3, 4);
}

TYPED_TEST(ThreadsKernels, NormAgreesWithTheReference) {
  using T = TypeParam;
  for_norms<T>([&]<bool whole, int packs>(Norm<T>& n, int threads) {
    n.template forward<whole, packs, false>(threads);
    const auto forward = reference::rmsnorm_forward(doubles(n.x), doubles(n.weight), eps);
    const auto backward = reference::rmsnorm_backward(doubles(n.x), doubles(n.weight), eps, doubles(n.dy));
    double largest = 1;
    for (const double value : forward.rstd) largest = std::max(largest, value);
    const double error = acc_error<T> * largest;
    expect_close(n.y, forward.y, error, "y");
    expect_close(n.rstd, forward.rstd, error, "rstd");
    for (const bool with_addend : {false, true}) {
      n.template backward<whole, packs>(threads, with_addend);
      const auto dx = with_addend ? reference::add(backward.dx, doubles(n.addend)) : backward.dx;
      expect_close(n.dx, dx, 30 * error, "dx");
      Values<acc_t<T>> dweight(static_cast<std::size_t>(n.d));
      for (std::size_t i = 0; i < dweight.size(); ++i)
        dweight[i] = n.partials[i] + n.partials[i + dweight.size()];
      expect_close(dweight, backward.dweight, 30 * acc_error<T>, "dweight");
    }
  });
}

TYPED_TEST(ThreadsKernels, NormOfASumIsAddThenNorm) {
  using T = TypeParam;
  for_norms<T>([&]<bool whole, int packs>(Norm<T>& n, int threads) {
    n.template forward<whole, packs, true>(threads);
    Norm<T> plain = n;
    plain.x = n.sum;
    for (std::size_t i = 0; i < n.sum.size(); ++i) {
      const T expected = static_cast<T>(load(n.x[i]) + load(n.addend[i]));
      ASSERT_EQ(static_cast<double>(n.sum[i]), static_cast<double>(expected)) << i;
    }
    plain.template forward<whole, packs, false>(threads);
    EXPECT_TRUE(same_bits(n.y, plain.y) && same_bits(n.rstd, plain.rstd));
  });
}

TYPED_TEST(ThreadsKernels, ColumnsAreSummedOverBlocks) {
  using A = acc_t<TypeParam>;
  const std::int64_t blocks = 37, d = 75;
  const auto partials = random<A>(blocks * d, 1);
  const auto before = random<TypeParam>(d, 2);
  for (const bool accumulate : {false, true}) {
    auto dweight = before;
    for (std::int64_t begin = 0; begin < d; begin += 32) {
      std::vector<A> scratch(128, std::numeric_limits<A>::quiet_NaN());
      run_threads(128, [&](const HostThreads& t) {
        combine_columns(t, partials.data(), blocks, d, begin, accumulate, dweight.data(), scratch.data());
      });
    }
    std::vector<double> expected(static_cast<std::size_t>(d));
    for (std::int64_t i = 0; i < d; ++i) {
      const auto column = static_cast<std::size_t>(i);
      if (accumulate) expected[column] = static_cast<double>(before[column]);
      for (std::int64_t b = 0; b < blocks; ++b)
        expected[column] += partials[static_cast<std::size_t>(b * d + i)];
    }
    expect_close(dweight, expected, acc_error<TypeParam>, "dweight");
  }
}

/// A row of logits, with room to the end of its last pack.
template <class T>
struct Logits {
  std::int64_t vocabulary;
  Values<acc_t<T>> row;
  Values<T> gradient;

  explicit Logits(std::int64_t v)
      : vocabulary(v),
        row(random<acc_t<T>>(round_up(v, 32), 5, 4)),
        gradient(row.size(), static_cast<T>(std::numeric_limits<float>::quiet_NaN())) {
    std::fill(row.begin() + v, row.end(), std::numeric_limits<acc_t<T>>::quiet_NaN());
  }

  double loss(int threads, std::int32_t target, float weight, double scale, acc_t<T> cap = 0,
              LossTerms terms = {}) {
    T* to = gradient.data();
    if constexpr (std::is_same_v<T, acc_t<T>>) to = row.data();  // in place, as there
    double result = 0;
    run_threads(threads, [&](const HostThreads& t) {
      const double nll =
          token_loss<T, true>(t, LossRow<T>{row.data(), to, vocabulary, target, weight, scale, cap, terms});
      if (t.rank() == 0) result = nll;
    });
    if constexpr (std::is_same_v<T, acc_t<T>>) gradient.assign(row.begin(), row.end());
    return result;
  }
};

TYPED_TEST(ThreadsKernels, LossOfARowAgreesWithFloat64) {
  using T = TypeParam;
  using Row = std::tuple<std::int64_t, acc_t<T>, LossTerms>;
  const LossTerms none, both{0.1, 0.01};
  for (const auto& [vocabulary, cap, terms] :
       {Row{1, 0, none}, Row{7, 0, none}, Row{40, 0, none}, Row{257, 0, none}, Row{5000, 0, none},
        Row{257, 2, none}, Row{5000, 2, none}, Row{257, 0, both}, Row{5000, 2, both}}) {
    SCOPED_TRACE(::testing::Message() << vocabulary << " words, cap " << cap << ", plain " << terms.plain());
    const double smoothing = terms.label_smoothing, words = static_cast<double>(vocabulary);
    const auto target = static_cast<std::int32_t>(vocabulary * 2 / 3);
    Logits<T> logits(vocabulary);
    auto x = doubles(logits.row);
    x.resize(static_cast<std::size_t>(vocabulary));
    if (cap > 0)
      for (double& value : x) value = cap * std::tanh(value / cap);
    const double maximum = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double value : x) sum += std::exp(value - maximum);
    const double lse = maximum + std::log(sum);
    double nll = lse - (1 - smoothing) * x[static_cast<std::size_t>(target)] + terms.z_loss * lse * lse;
    for (const double value : x) nll -= smoothing * value / words;
    Logits<T> alone = logits;
    double of_loss = 0;
    run_threads(32, [&](const HostThreads& t) {
      const double found = token_loss<T, false>(
          t, LossRow<T>{alone.row.data(), nullptr, vocabulary, target, 0.5f, 1, cap, terms});
      if (t.rank() == 0) of_loss = found;
    });
    const double loss = logits.loss(32, target, 0.5f, 4, cap, terms);
    EXPECT_NEAR(loss, 0.5 * nll, 0.5 * acc_error<T> * (1 + nll));
    EXPECT_EQ(loss, of_loss);
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i)
      expected.push_back(2 *
                         (std::exp(x[i] - lse) * (1 + 2 * terms.z_loss * lse) - smoothing / words -
                          (static_cast<std::int32_t>(i) == target ? 1 - smoothing : 0)) *
                         (cap > 0 ? 1 - std::pow(x[i] / cap, 2) : 1));
    logits.gradient.resize(x.size());
    expect_close(logits.gradient, expected, 4 * acc_error<T>, "gradient");
  }
}

TYPED_TEST(ThreadsKernels, LossOfWhatIsIgnoredOrUnknown) {
  using T = TypeParam;
  Logits<T> ignored(100), unknown(100), spoilt(100), infinite(100);
  EXPECT_EQ(ignored.loss(32, -100, 0, 1), 0);
  EXPECT_TRUE(std::isnan(unknown.loss(32, 100, 1, 1)));
  spoilt.row[77] = std::numeric_limits<acc_t<T>>::quiet_NaN();
  EXPECT_TRUE(std::isnan(spoilt.loss(32, 3, 1, 1)));
  infinite.row[5] = std::numeric_limits<acc_t<T>>::infinity();
  EXPECT_TRUE(std::isnan(infinite.loss(32, 3, 1, 1)));
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(static_cast<float>(ignored.gradient[i]), 0);
    EXPECT_TRUE(std::isnan(static_cast<float>(unknown.gradient[i])));
    EXPECT_TRUE(std::isnan(static_cast<float>(spoilt.gradient[i])));
  }
  // A logit of -infinity has no share.
  Logits<T> never(100);
  never.row[5] = -std::numeric_limits<acc_t<T>>::infinity();
  EXPECT_TRUE(std::isfinite(never.loss(32, 3, 1, 1)));
  EXPECT_EQ(static_cast<float>(never.gradient[5]), 0);
}

TEST(Losses, AreAddedOverChunks) {
  const auto nll = random<double>(1001, 1);
  const auto weights = random<float>(1001, 2);
  std::vector<double> loss{7, 7};
  double expected = 0, weight = 0;
  for (const bool first : {true, false}) {
    run_threads(64, [&](const HostThreads& t) {
      add_losses(t, nll.data(), weights.data(), 1001, first, loss.data());
    });
    for (std::size_t i = 0; i < nll.size(); ++i) {
      expected += nll[i];
      weight += weights[i];
    }
    EXPECT_NEAR(loss[0], expected, 1e-10);
    EXPECT_NEAR(loss[1], weight, 1e-10);
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_threads_test
