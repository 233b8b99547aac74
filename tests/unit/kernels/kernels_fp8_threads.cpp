// What GPUs run to quantise a matrix both ways round, by threads of the host: the bits of what CPUs run.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/fp8_quantize.hpp"
#include "kernels/fp8/fp8_tiles.hpp"
#include "tests/support/host_threads.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_fp8_threads_test {
namespace {

using namespace ztrain::test;

template <class Code>
struct Fp8Threads : ::testing::Test {
  /// A matrix, and what CPUs make of it.
  struct Case {
    std::int64_t rows, cols;
    Array<bf16> x;
    Array<Code> codes;
    Array<std::uint8_t> transposed;
    Array<float> scale, partials;

    Case(std::int64_t rows_, std::int64_t cols_, bool both)
        : rows(rows_),
          cols(cols_),
          x(random<bf16>(rows * cols, 3, 2000)),
          codes(x.size()),
          transposed(x.size(), std::uint8_t{0x55}),
          scale(1),
          partials(fp8_most_parts) {
      const TestExec exec;
      fp8_quantize_tensor<Code>(*exec, matrix(x, rows), matrix(codes, rows),
                                both ? transposed.data() : nullptr, scale.data(), partials.data());
    }
  };

  template <bool both>
  void check(std::int64_t rows, std::int64_t cols, int threads) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", both: " << both);
    const Case expected(rows, cols, both);
    Array<Code> codes(expected.x.size());
    Array<std::uint8_t> transposed(expected.x.size(), std::uint8_t{0x55});
    Array<float> scale(1);
    const std::int64_t parts = ceil_div(rows * cols, fp8_part(rows * cols));
    const Fp8Tiles<Code, both> tiles{{expected.x.data(), rows, cols, codes.data(), transposed.data()},
                                     {expected.partials.data(), parts},
                                     scale.data()};
    run_threads(threads, [&](const HostThreads& team) {
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) tiles.run(team, tile);
    });
    EXPECT_EQ(scale, expected.scale);
    EXPECT_EQ(transposed, expected.transposed);
    for (std::size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(codes[i].bits, expected.codes[i].bits) << i;
  }
};
using Codes = ::testing::Types<f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(Fp8Threads, Codes);

TYPED_TEST(Fp8Threads, TilesAreWhatCpusMake) {
  for (const int threads : {1, 3, 8}) {
    this->template check<true>(16, 16, threads);
    this->template check<true>(144, 272, threads);  // beyond a tile both ways
    this->template check<true>(64, 1024, threads);
    this->template check<true>(1056, 2064, threads);  // several parts
    this->template check<false>(1, 16, threads);
    this->template check<false>(37, 272, threads);
    this->template check<false>(131, 528, threads);
  }
  this->template check<true>(272, 528, Fp8Tiles<TypeParam, true>::threads);
}

TEST(Launches, CountTeamsAsAnInt) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  EXPECT_EQ(team_count(most), most);
  EXPECT_THROW(team_count(most + 1), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_fp8_threads_test
