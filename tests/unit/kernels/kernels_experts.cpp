// Kernels of mixtures of experts against float64: the choice of experts, rows on their way to them and back,
// and balance losses.

#include <gtest/gtest.h>

#include <limits>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/experts/balance.hpp"
#include "kernels/experts/reference.hpp"
#include "kernels/experts/rows.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_experts_test {
namespace {

using namespace ztrain::test;
using Numbers = std::vector<std::int32_t>;

template <class A>
constexpr double error = std::is_same_v<A, double> ? 1e-12 : 2e-6;

template <class T>
struct ExpertRows : ::testing::Test {
  TestExec exec;
};
template <class A>
struct Router : ExpertRows<A> {};
TYPED_TEST_SUITE(ExpertRows, FloatTypes);
using LogitTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Router, LogitTypes);

template <class Values>
Numbers numbers(const Values& values) {
  return Numbers(values.begin(), values.end());
}
Array<std::int32_t> on_device(const Numbers& values) {
  Array<std::int32_t> array;
  for (const std::int32_t v : values) array.push_back(v);
  return array;
}

template <class A>
struct Routed {
  Array<A> weights;
  Array<std::int32_t> experts;
};
template <class A>
Routed<A> routed(Exec& exec, const RouteOptions& o, const Array<A>& logits, std::int64_t tokens,
                 const Array<A>& bias = {}) {
  Routed<A> r{Array<A>(static_cast<std::size_t>(tokens * o.top_k)),
              Array<std::int32_t>(static_cast<std::size_t>(tokens * o.top_k))};
  route<A>(exec, o, matrix(logits, tokens), bias.empty() ? Vector<const A>{} : view(bias),
           matrix(r.weights, tokens), matrix(r.experts, tokens));
  return r;
}

struct RoutingCase {
  std::int64_t tokens, experts, top_k, groups = 0, top_groups = 0;
  bool top_two = false;
};
const std::vector<RoutingCase> routing_cases{
    {1, 1, 1}, {5, 3, 2}, {7, 8, 8}, {70, 40, 6, 4, 2}, {33, 64, 8, 8, 3, true}, {4, 512, 32},
};

template <class F>
void for_routings(const F& f) {
  for (const RoutingCase& c : routing_cases)
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid})
      for (const bool normalise : {false, true}) {
        RouteOptions o;
        o.top_k = c.top_k;
        o.score = score;
        o.normalise = normalise;
        o.top_two = c.top_two;
        o.scale = 2.5;
        o.groups = c.groups;
        o.top_groups = c.top_groups;
        SCOPED_TRACE(testing::Message() << c.tokens << " tokens to " << c.top_k << " of " << c.experts
                                        << (score == RouterScore::softmax ? ", softmax" : ", sigmoid")
                                        << (normalise ? ", normalised" : ""));
        f(c, o);
      }
}

TYPED_TEST(Router, ChoosesAndWeighsAsTheReference) {
  using A = TypeParam;
  for_routings([&](const RoutingCase& c, const RouteOptions& o) {
    const auto logits = random<A>(c.tokens * c.experts, 1, 2), bias = random<A>(c.experts, 2, 0.2);
    const auto experts = static_cast<std::size_t>(c.experts);
    for (const Array<A>& added : {Array<A>{}, bias}) {
      const auto r = routed<A>(*this->exec, o, logits, c.tokens, added);
      const Numbers wanted = reference::route_experts(o, doubles(logits), experts, doubles(added));
      EXPECT_EQ(numbers(r.experts), wanted);
      expect_close(r.weights, reference::route_weights(o, doubles(logits), experts, wanted), 4 * error<A>,
                   "weights");
    }
  });
}

TYPED_TEST(Router, HasTheGradientOfItsWeights) {
  using A = TypeParam;
  for_routings([&](const RoutingCase& c, const RouteOptions& o) {
    const auto logits = random<A>(c.tokens * c.experts, 1, 2), dweights = random<A>(c.tokens * c.top_k, 3);
    const auto r = routed<A>(*this->exec, o, logits, c.tokens);
    Array<A> dlogits(logits.size());
    route_backward<A>(*this->exec, o, matrix(dweights, c.tokens), matrix(logits, c.tokens),
                      matrix(std::as_const(r.experts), c.tokens), matrix(dlogits, c.tokens));
    const auto of_token = [&](std::size_t t, std::size_t width, const auto& all) {
      return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(t * width),
                                 all.begin() + static_cast<std::ptrdiff_t>((t + 1) * width));
    };
    const auto experts = static_cast<std::size_t>(c.experts), k = static_cast<std::size_t>(c.top_k);
    for (std::size_t t = 0; t < static_cast<std::size_t>(c.tokens); t += 13) {
      const Numbers all = numbers(r.experts);
      const Numbers chosen(&all[t * k], &all[t * k] + k);
      const auto dw = of_token(t, k, dweights);
      const auto wanted = reference::differences(
          [&](const std::vector<double>& l) {
            const auto w = reference::route_weights(o, l, experts, chosen);
            return std::inner_product(w.begin(), w.end(), dw.begin(), 0.0);
          },
          of_token(t, experts, logits));
      for (std::size_t e = 0; e < experts; ++e)
        EXPECT_NEAR(static_cast<double>(dlogits[t * experts + e]), wanted[e],
                    (std::is_same_v<A, double> ? 1e-8 : 1e-5));
    }
  });
}

TYPED_TEST(Router, TakesTheLowerNumberOfEqualScoresAndLetsNaNThrough) {
  using A = TypeParam;
  constexpr A nan = std::numeric_limits<A>::quiet_NaN(), inf = std::numeric_limits<A>::infinity();
  RouteOptions o;
  o.top_k = 3;
  const Array<A> logits{1,    2,    2,    1,    1,   2,     //
                        -inf, -inf, -inf, -inf, 0,   -inf,  //
                        0,    1,    nan,  3,    2,   1,     //
                        nan,  nan,  nan,  nan,  nan, nan};
  const auto r = routed<A>(*this->exec, o, logits, 4);
  EXPECT_EQ(numbers(r.experts), (Numbers{1, 2, 5, 4, 0, 1, 2, 3, 4, 0, 1, 2}));
  EXPECT_TRUE(std::isnan(static_cast<double>(r.weights[6])));
  o.groups = 3;
  o.top_groups = 2;
  for (const std::int32_t e : routed<A>(*this->exec, o, logits, 4).experts) EXPECT_TRUE(e >= 0 && e < 6);
  o.groups = 0;
  o.balanced = true;
  EXPECT_EQ(numbers(routed<A>(*this->exec, o, logits, 4).experts),
            (Numbers{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
}

/// Choices [tokens, k] of `experts` experts.
struct Choices {
  std::string name;
  std::int64_t tokens, k, experts;
  Numbers of;
};
std::vector<Choices> all_choices() {
  std::vector<Choices> all;
  const auto add = [&](std::string name, std::int64_t tokens, std::int64_t k, std::int64_t experts,
                       const auto& choice) {
    Choices c{std::move(name), tokens, k, experts, {}};
    for (std::int64_t i = 0; i < tokens * k; ++i) c.of.push_back(static_cast<std::int32_t>(choice(i)));
    all.push_back(std::move(c));
  };
  add("even", 32, 2, 8, [](std::int64_t i) { return i % 8; });
  add("all to one", 9, 1, 5, [](std::int64_t) { return 3; });
  add("an expert without a token", 21, 3, 4, [](std::int64_t i) { return i % 3; });
  add("fewer tokens than experts", 3, 2, 64, [](std::int64_t i) { return 63 - 7 * i; });
  add("random", 50, 8, 128, [](std::int64_t i) {  // eight neighbours from a random expert on
    const double at = std::abs(normal(9, 1, static_cast<std::uint64_t>(i / 8)));
    return (static_cast<std::int64_t>(1000 * at) + i % 8) % 128;
  });
  return all;
}

TEST(SortByExpert, KeepsTheOrderOfTokens) {
  const TestExec exec;
  for (const Choices& c : all_choices()) {
    SCOPED_TRACE(c.name);
    const auto wanted = reference::sort_by_expert(c.of, static_cast<std::int32_t>(c.experts));
    const auto chosen = on_device(c.of);
    Array<std::int32_t> slots(c.of.size()), offsets(static_cast<std::size_t>(c.experts + 1));
    Array<char> workspace(
        static_cast<std::size_t>(sort_by_expert_workspace_bytes(c.tokens * c.k, c.experts, build_target())),
        '\xff');
    sort_by_expert(*exec, view(chosen), view(slots), view(offsets), workspace.data());
    EXPECT_EQ(numbers(slots), wanted.slots);
    EXPECT_EQ(numbers(offsets), wanted.offsets);
  }
}

TYPED_TEST(ExpertRows, GoToExpertsAndBackAsInTheReference) {
  using T = TypeParam;
  using A = acc_t<T>;
  for (const Choices& c : all_choices())
    for (const std::int64_t d : {1, 3, 257, 600}) {
      SCOPED_TRACE(testing::Message() << c.name << ", width " << d);
      const std::int64_t choices = c.tokens * c.k;
      const auto sorted = reference::sort_by_expert(c.of, static_cast<std::int32_t>(c.experts)).slots;
      const auto slots = on_device(sorted);
      const auto at = matrix(slots, c.tokens);
      const auto x = random<T>(c.tokens * d, 1), rows = random<T>(choices * d, 2),
                 dy = random<T>(c.tokens * d, 3);
      const auto weights = random<A>(choices, 4);
      const auto w = matrix(weights, c.tokens);
      const auto width = static_cast<std::size_t>(d), k = static_cast<std::size_t>(c.k);
      const std::vector<double> ones(sorted.size(), 1);

      Array<T> permuted(rows.size()), y(x.size()), dx(x.size()), added = dy, drows(rows.size());
      Array<A> dweights(weights.size());
      permute<T>(*this->exec, matrix(x, c.tokens), at, matrix(permuted, choices));
      expect_close(permuted, reference::spread_rows(doubles(x), width, sorted, ones), 0, "permuted");
      combine<T>(*this->exec, matrix(rows, choices), at, w, matrix(y, c.tokens));
      expect_close(y, reference::gather_rows(doubles(rows), width, k, sorted, doubles(weights)),
                   10 * error<A>, "combined");
      permute_backward<T>(*this->exec, matrix(rows, choices), at, matrix(dx, c.tokens), false);
      auto sums = reference::gather_rows(doubles(rows), width, k, sorted, ones);
      expect_close(dx, sums, 10 * error<A>, "dx");
      permute_backward<T>(*this->exec, matrix(rows, choices), at, matrix(added, c.tokens), true);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(dy[i]);
      expect_close(added, sums, 10 * error<A>, "accumulated dx");
      combine_backward<T>(*this->exec, matrix(dy, c.tokens), matrix(rows, choices), at, w,
                          matrix(drows, choices), matrix(dweights, c.tokens));
      expect_close(drows, reference::spread_rows(doubles(dy), width, sorted, doubles(weights)), error<A>,
                   "drows");
      expect_close(dweights, reference::row_products(doubles(dy), doubles(rows), width, sorted),
                   30 * error<A>, "dweights");
    }
}

TYPED_TEST(ExpertRows, AreGatedAsInTheReference) {
  using T = TypeParam;
  const std::int64_t tokens = 7;
  for (const std::int64_t d : {1, 33, 600}) {
    const auto x = random<T>(tokens * d, 1), dy = random<T>(tokens * d, 2), gate = random<T>(tokens, 3, 3);
    Array<T> y(x.size()), dx(x.size()), dgate(gate.size());
    gate_tokens<T>(*this->exec, matrix(x, tokens), view(gate), matrix(y, tokens));
    gate_tokens_backward<T>(*this->exec, matrix(dy, tokens), matrix(x, tokens), view(gate),
                            matrix(dx, tokens), view(dgate));
    Numbers order;
    std::vector<double> opened, slope;
    for (std::int32_t t = 0; t < tokens; ++t) {
      order.push_back(t);
      opened.push_back(1 / (1 + std::exp(-static_cast<double>(gate[static_cast<std::size_t>(t)]))));
      slope.push_back(opened.back() * (1 - opened.back()));
    }
    const auto width = static_cast<std::size_t>(d);
    expect_close(y, reference::spread_rows(doubles(x), width, order, opened), error<acc_t<T>>, "y");
    expect_close(dx, reference::spread_rows(doubles(dy), width, order, opened), error<acc_t<T>>, "dx");
    auto wanted = reference::row_products(doubles(dy), doubles(x), width, order);
    for (std::size_t t = 0; t < wanted.size(); ++t) wanted[t] *= slope[t];
    expect_close(dgate, wanted, 30 * error<acc_t<T>>, "dgate");
  }
}

TYPED_TEST(ExpertRows, GetABiasOfTheRouter) {
  using T = TypeParam;
  const std::int64_t tokens = 5, experts = 11;
  const auto bias = random<T>(experts, 1);
  auto logits = random<acc_t<T>>(tokens * experts, 2);
  auto wanted = doubles(logits);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += static_cast<double>(bias[i % 11]);
  add_router_bias<T>(*this->exec, view(bias), matrix(logits, tokens));
  expect_close(logits, wanted, error<acc_t<T>>, "logits");
}

template <class A>
Array<A> sums_of(Exec& exec, RouterScore score, const Array<A>& logits, const Choices& c,
                 const Array<float>& weights) {
  const auto chosen = on_device(c.of);
  Array<A> sums(static_cast<std::size_t>(2 * c.experts + 3));
  Array<char> workspace(static_cast<std::size_t>(
      router_sums_workspace_bytes(c.tokens, c.experts, dtype_of<A>(), build_target())));
  router_sums<A>(exec, score, matrix(logits, c.tokens), matrix(chosen, c.tokens), view(weights), view(sums),
                 workspace.data());
  settle();
  return sums;
}

TYPED_TEST(Router, SumsScoresAsTheReferenceWithTheirGradient) {
  using A = TypeParam;
  for (const Choices& c : all_choices())
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
      SCOPED_TRACE(c.name);
      const auto experts = static_cast<std::size_t>(c.experts);
      const auto logits = random<A>(c.tokens * c.experts, 1, 2);
      const auto weights = random<float>(c.tokens, 2);
      const auto wanted = reference::router_sums(score, doubles(logits), experts, c.of, doubles(weights));
      const Array<A> sums = sums_of<A>(*this->exec, score, logits, c, weights);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(static_cast<double>(sums[i]), wanted[i], 10 * error<A> * (1 + std::abs(wanted[i]))) << i;

      const auto dsums = random<A>(2 * c.experts + 3, 3);
      Array<A> dlogits(logits.size());
      router_sums_backward<A>(*this->exec, score, view(dsums), matrix(logits, c.tokens),
                              matrix(dlogits, c.tokens));
      const auto all = doubles(logits), ds = doubles(dsums);
      for (std::size_t t = 0; t < static_cast<std::size_t>(c.tokens); t += 20) {
        const auto slopes = reference::differences(
            [&](const std::vector<double>& l) {
              const auto s = reference::router_sums(score, l, experts, {}, {0});
              return std::inner_product(s.begin(), s.end(), ds.begin(), 0.0);
            },
            {all.begin() + static_cast<std::ptrdiff_t>(t * experts),
             all.begin() + static_cast<std::ptrdiff_t>((t + 1) * experts)});
        for (std::size_t e = 0; e < experts; ++e)
          EXPECT_NEAR(static_cast<double>(dlogits[t * experts + e]), slopes[e],
                      (std::is_same_v<A, double> ? 1e-7 : 3e-5));
      }
    }
}

/// The error of many tokens' sums grows with the root of their number.
TEST(RouterSums, OfManyTokensStayClose) {
  const TestExec exec;
  Choices c{"many", 20000, 1, 2, Numbers(20000, 1)};
  const auto logits = random<float>(40000, 1);
  const Array<float> weights(20000, 1);
  const auto wanted =
      reference::router_sums(RouterScore::softmax, doubles(logits), 2, c.of, doubles(weights));
  const auto sums = sums_of<float>(*exec, RouterScore::softmax, logits, c, weights);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(sums[i], wanted[i], 4e-7 * wanted[i]) << i;
}

TYPED_TEST(Router, HasTheBalanceLossOfTransformersAndItsGradient) {
  using A = TypeParam;
  const Choices c = all_choices()[4];
  const auto experts = static_cast<std::size_t>(c.experts);
  const auto logits = random<A>(c.tokens * c.experts, 1);
  const Array<float> weights(static_cast<std::size_t>(c.tokens), 0.5F);
  const auto sums = sums_of<A>(*this->exec, RouterScore::softmax, logits, c, weights);
  const double balance = 0.01, z = 0.001, of_weights = 0.5 * static_cast<double>(c.tokens);
  Array<double> losses(2), again(2);
  Array<A> dsums(sums.size());
  StepScalars step;
  step.loss_scale = 8;
  Shared<StepScalars> scalars(step);
  const BalanceSums<A> alone{view(sums), view(sums)};
  balance_loss<A>(*this->exec, {1, balance, z}, alone, view(losses));
  balance_loss_with_gradient<A>(*this->exec, {1, balance, z}, alone, scalars.get(), view(again), view(dsums));
  const double wanted =
      balance * of_weights *
      reference::load_balancing_loss(doubles(logits), experts, static_cast<std::size_t>(c.k), c.of);
  EXPECT_NEAR(losses[0], wanted, 10 * error<A> * wanted);
  EXPECT_NEAR(losses[1], z * of_weights * static_cast<double>(sums[2 * experts + 1]) / 50, 1e-6);
  EXPECT_TRUE(same_bits(losses, again));
  // Of two layers: each has half of the sums.
  balance_loss<A>(*this->exec, {2, balance, z}, alone, view(again));
  EXPECT_EQ(2 * again[0], losses[0]);
  EXPECT_EQ(2 * again[1], losses[1]);

  for (const std::size_t i : {experts, experts + 17, 2 * experts - 1, 2 * experts + 1}) {
    Array<A> moved = sums;
    const A step_size = static_cast<A>(0.125F);  // the losses are linear in these
    moved[i] += step_size;
    balance_loss<A>(*this->exec, {1, balance, z}, {view(std::as_const(moved)), view(sums)}, view(again));
    const double slope = 8 * (again[0] + again[1] - losses[0] - losses[1]) / 0.125;
    EXPECT_NEAR(static_cast<double>(dsums[i]), slope, 1e-4 * std::abs(slope) + 1e-9) << i;
  }
  for (const std::size_t i : {std::size_t{0}, 2 * experts, 2 * experts + 2}) EXPECT_EQ(dsums[i], A(0));
}

}  // namespace
}  // namespace ztrain::kernels::kernels_experts_test
