// What GPUs run for mixtures of experts, by threads of the host: against what a CPU runs.

#include <gtest/gtest.h>

#include "kernels/experts/balance_rows.hpp"
#include "kernels/experts/scaled_rows.hpp"
#include "kernels/experts/sort_rows.hpp"
#include "tests/support/host_threads.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::kernels::kernels_experts_threads_test {
namespace {

using namespace ztrain::test;

constexpr std::int64_t tokens = 5, count = 72, top_k = 6;

template <class Values>
void expect_near(const Values& a, const Values& b, double error) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], error) << i;
}

/// Rows by one thread, and by the lanes of a warp.
template <class One, class Warp>
void run_both(std::int64_t rows, const One& one, const Warp& warp) {
  for (std::int64_t i = 0; i < rows; ++i) one(i);
  run_threads(warp_lanes, [&](const HostThreads& threads) {
    for (std::int64_t i = 0; i < rows; ++i) warp.by(threads, i);
  });
}

template <class A>
struct ThreadsRouter : ::testing::Test {};
using LogitTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ThreadsRouter, LogitTypes);

TYPED_TEST(ThreadsRouter, ChoosesAsOneThreadDoes) {
  using A = TypeParam;
  auto logits = random<A>(tokens * count, 1, 2);
  for (std::size_t e = 0; e < 20; ++e) logits[e] = A(3);  // equal ones in several lanes
  const auto bias = random<A>(count, 2, 0.1), dweights = random<A>(tokens * top_k, 3);
  for (const bool grouped : {false, true})
    for (const bool normalise : {false, true})
      for (const A* added : {static_cast<const A*>(nullptr), bias.data()}) {
        RouteOptions o;
        o.top_k = top_k;
        o.score = added != nullptr ? RouterScore::sigmoid : RouterScore::softmax;
        o.normalise = normalise;
        if (grouped) o.groups = 6, o.top_groups = 2, o.top_two = added != nullptr;
        std::vector<A> weights(tokens * top_k), again(weights), dlogits(logits.size()), back(dlogits);
        std::vector<std::int32_t> experts(weights.size()), chosen(experts);
        run_both(tokens, RouteRow<A, 1>{o, count, logits.data(), added, weights.data(), experts.data()},
                 RouteRow<A, warp_lanes>{o, count, logits.data(), added, again.data(), chosen.data()});
        EXPECT_EQ(experts, chosen);
        expect_near(weights, again, 1e-6);
        run_both(tokens,
                 RouteGradRow<A>{o, count, dweights.data(), logits.data(), experts.data(), dlogits.data()},
                 RouteGradRow<A>{o, count, dweights.data(), logits.data(), experts.data(), back.data()});
        expect_near(dlogits, back, 1e-6);
      }
}

TYPED_TEST(ThreadsRouter, SumsAsOneThreadDoes) {
  using A = TypeParam;
  const auto logits = random<A>(tokens * count, 1, 2), dsums = random<A>(2 * count + 3, 2);
  const std::vector<float> weights(tokens, 0.5F);
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < tokens * top_k; ++i)
    chosen.push_back(static_cast<std::int32_t>(i * 7 % count));
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    std::vector<A> sums(2 * count + 3), others(sums), dlogits(logits.size()), back(dlogits);
    run_both(1,
             RouterSumsBlock<A, 1>{score, tokens, tokens, count, top_k, logits.data(), chosen.data(),
                                   weights.data(), sums.data()},
             RouterSumsBlock<A, warp_lanes>{score, tokens, tokens, count, top_k, logits.data(), chosen.data(),
                                            weights.data(), others.data()});
    expect_near(sums, others, 2e-4);
    run_both(tokens, RouterSumsGradRow<A>{score, count, dsums.data(), logits.data(), dlogits.data()},
             RouterSumsGradRow<A>{score, count, dsums.data(), logits.data(), back.data()});
    expect_near(dlogits, back, 2e-6);
    StepScalars scalars;
    scalars.loss_scale = 4;
    std::vector<double> losses(2), same(2);
    std::vector<A> ds(sums.size()), of_warp(sums.size());
    const BalanceCoefficients c{2, 0.1, 0.2};
    run_both(1, BalanceTeam<A>{c, count, sums.data(), sums.data(), &scalars, losses.data(), ds.data()},
             BalanceTeam<A>{c, count, sums.data(), sums.data(), &scalars, same.data(), of_warp.data()});
    expect_near(losses, same, 1e-9);
    EXPECT_EQ(ds, of_warp);
  }
}

TEST(ThreadsSort, PlacesAsTheBlocksOfACpu) {
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < 100; ++i) chosen.push_back(static_cast<std::int32_t>(i * 7 % 23));
  constexpr std::int64_t experts = 23, block = 9, blocks = 12;
  std::vector<std::int32_t> begins(blocks * experts), slots(chosen.size()), offsets(experts + 1);
  const SortBlocks b{chosen.data(), 100, block, experts, begins.data(), slots.data()};
  for (std::int64_t i = 0; i < blocks; ++i) CountBlock{b}(i);
  SumCounts{b, blocks, offsets.data()}(0);
  for (std::int64_t i = 0; i < blocks; ++i) PlaceBlock{b}(i);
  const auto by_blocks = slots, offsets_by_blocks = offsets;
  slots.assign(slots.size(), -1);
  offsets.assign(offsets.size(), -1);
  for (std::int64_t i = 0; i < blocks * experts; ++i) CountOne{b}(i);
  run_threads(warp_lanes, [&](const HostThreads& threads) {
    SumCounts{b, blocks, offsets.data()}.by(threads, 0);
  });
  for (std::int64_t i = 0; i < blocks * experts; ++i) PlaceOne{b}(i);
  EXPECT_EQ(slots, by_blocks);
  EXPECT_EQ(offsets, offsets_by_blocks);
  EXPECT_EQ(offsets.back(), 100);
}

template <class T>
struct ThreadsRows : ::testing::Test {};
TYPED_TEST_SUITE(ThreadsRows, FloatTypes);

TYPED_TEST(ThreadsRows, HaveTheGradientsOfOneThread) {
  using T = TypeParam;
  using A = acc_t<T>;
  for (const std::int64_t d : {3, 520}) {
    const auto dy = random<T>(tokens * d, 1), rows = random<T>(2 * tokens * d, 2),
               gate = random<T>(tokens, 3);
    const auto weights = random<A>(2 * tokens, 4);
    std::vector<std::int32_t> slots;
    for (std::int32_t i = 0; i < 2 * tokens; ++i) slots.push_back(i * 3 % 10);
    Array<T> drows(rows.size()), others(rows.size()), dx(dy.size()), same(dy.size()), dgate(tokens),
        of(tokens);
    std::vector<A> dweights(2 * tokens), again(2 * tokens);
    run_both(2 * tokens,
             CombineGradRow<T>{dy.data(), rows.data(), slots.data(), weights.data(), 2, d, drows.data(),
                               dweights.data()},
             CombineGradRow<T>{dy.data(), rows.data(), slots.data(), weights.data(), 2, d, others.data(),
                               again.data()});
    EXPECT_TRUE(same_bits(drows, others));
    expect_near(dweights, again, 1e-4);
    run_both(tokens, GateRowsGradRow<T>{dy.data(), rows.data(), gate.data(), d, dx.data(), dgate.data()},
             GateRowsGradRow<T>{dy.data(), rows.data(), gate.data(), d, same.data(), of.data()});
    EXPECT_TRUE(same_bits(dx, same));
    expect_close(of, doubles(dgate), rounding<T> * 20 + 1e-5, "dgate");
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_experts_threads_test
