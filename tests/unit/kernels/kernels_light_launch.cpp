// A launch must not allocate: the step's inner loop runs in memory that was planned.

#include <gtest/gtest.h>

#include <memory>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/xielu.hpp"
#include "kernels/elementwise/arithmetic.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/init.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "kernels/rope/rope.hpp"
#include "kernels/step/step_metrics.hpp"
#include "telemetry/allocation_count.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_light_launch_test {
namespace {

using namespace ztrain::test;

TEST(Launch, AllocatesNothing) {
  if (test_gpu() > 0) GTEST_SKIP() << kokkos_allocates;
  const TestExec handle;
  Exec& exec = *handle;
  const std::int64_t rows = 65, d = 300, n = rows * d;
  auto x = random<float>(n, 1), y = x, z = x, u = x, dx = x;
  auto weight = random<float>(d, 2), dweight = weight, rstd = random<float>(rows, 3);
  auto table = random<float>(rows * 10, 4);
  auto half = random<bf16>(n, 5);
  Array<std::int32_t> tokens(static_cast<std::size_t>(rows), 3);
  Array<double> scalars(100), out(1);
  std::vector<const double*> terms(100);
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = &scalars[i];
  Array<StepPartial> partials(3);
  const std::vector<const ExactSum*> squares(100, &partials[0].squares);
  Array<char> workspace(
      static_cast<std::size_t>(rmsnorm_backward_workspace_bytes(rows, d, DType::f32, build_target()) +
                               sum_squares_workspace_bytes(n)));
  Shared<StepScalars> step;
  const auto in = [](auto& values) { return view(std::as_const(values)); };
  const auto of = [&](auto& values) { return matrix(values, rows); };
  const auto in_of = [&](auto& values) { return matrix(std::as_const(values), rows); };

  const telemetry::AllocationCount count;
  rmsnorm_forward<float>(exec, in_of(x), in(weight), 1e-5, of(y), view(rstd));
  add_rmsnorm_forward<float>(exec, in_of(x), in_of(y), in(weight), 1e-5, of(u), of(z), view(rstd));
  rmsnorm_backward<float, float>(exec, in_of(x), in(weight), in(rstd), in_of(y), in_of(z), of(dx),
                                 view(dweight), true, workspace.data());
  rope_table<float>(exec, in(tokens), rope_frequencies({1e4, "default"}, of(table).cols), of(table));
  rope_apply<float>(exec, in_of(x), in_of(table), {}, of(y));
  gated_forward<float>(exec, ActivationKind::silu, in_of(x), in_of(y), of(z));
  gated_backward<float>(exec, ActivationKind::silu, in_of(x), in_of(y), in_of(z), of(u), of(dx));
  activation_forward<float>(exec, ActivationKind::gelu_tanh, in(x), view(y));
  activation_backward<float>(exec, ActivationKind::gelu_tanh, in(x), in(y), view(z));
  const XieluConstants<float> xielu{weight.data(), weight.data() + 1, 0.5, -1e-6};
  xielu_forward<float>(exec, xielu, in_of(x), of(y));
  xielu_backward<float, float>(exec, xielu, in_of(x), in_of(y), of(z), dweight.data(), dweight.data() + 1,
                               true, workspace.data());
  add<float>(exec, in(x), in(y), view(z));
  copy(exec, x.data(), y.data(), n * 4);
  zero(exec, y.data(), n * 4);
  fill_poison(exec, y.data(), n * 4);
  embedding_forward<float>(exec, in(tokens), in_of(x), of(z));
  embedding_backward<float, float>(exec, in(tokens), in_of(x), of(z), false);
  swap_blocks<float>(exec, in(x), rows, 1, view(z));
  cast<float, bf16>(exec, in(x), view(half));
  sum_squares<float>(exec, in(x), false, &partials[0].squares, workspace.data());
  sum_terms(exec, terms, out.data());
  sum_exact(exec, squares, &partials[1].squares);
  finish_step(exec, in(partials), nullptr, step.get());
  normal_init<float>(exec, view(x), 1, 2, 3, 0.02);
  constant_init<float>(exec, view(x), 1);
  EXPECT_EQ(count.calls(), 0);
  const auto counted = std::make_unique<int>(1);
  EXPECT_EQ(count.calls(), 1) << "the counter works";
}

/// What the kernel tests rest on where launches return before their kernels have run.
TEST(Launch, IsWaitedForBeforeAnArrayShowsAnything) {
  const TestExec exec;
  Array<float> a(3, 1.0f), b = a;
  Shared<float> one;
  const auto waits = [&](const char* what, const auto& look) {
    zero(*exec, a.data(), 12);
    EXPECT_TRUE(launches_pending()) << what;
    look();
    EXPECT_FALSE(launches_pending()) << what;
  };
  const Array<float>& constant = a;
  waits("[]", [&] { EXPECT_EQ(a[0], 0); });
  waits("const []", [&] { EXPECT_EQ(constant[2], 0); });
  waits("begin", [&] { a.begin(); });
  waits("end", [&] { constant.end(); });
  waits("front", [&] { constant.front(); });
  waits("back", [&] { a.back(); });
  waits("a copy", [&] { EXPECT_EQ(Array<float>(a).size(), 3u); });
  waits("an assignment", [&] { b = a; });
  waits("==", [&] { EXPECT_TRUE(a == b); });
  waits("assign", [&] { b.assign(2, 1.0f); });
  waits("resize", [&] { b.resize(5, 1.0f); });
  waits("push_back", [&] { b.push_back(1.0f); });
  waits("insert", [&] { b.insert(b.end(), a.begin(), a.end()); });
  waits("same_bits", [&] { same_bits(a, b); });
  waits("one", [&] { EXPECT_EQ(*one, 0); });
  // An argument that looks comes before its own launch, whatever the compiler evaluates first.
  cast<float, float>(*exec, {&a[0], 3}, {&b[0], 3});
  EXPECT_TRUE(launches_pending());
  EXPECT_EQ(b[2], 0);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_light_launch_test
