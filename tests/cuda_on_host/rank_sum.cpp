// The GPU's sum over ranks (src/runtime/comm/rank_sum.cu), run on the host.

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "tests/cuda_on_host/orders.hpp"
#include "tests/support/comm_values.hpp"
#include "tests/support/pairwise.hpp"

namespace ztrain::runtime::rank_sum_test {
namespace {

using namespace ztrain::test;

/// What ranks contribute, where a rank finds it after an exchange: `shift` elements away from where a word of
/// 16 bytes may begin, and NaN behind what counts.
template <class In>
class Sources {
 public:
  Sources(int ranks, int rank, std::int64_t count, std::int64_t own_shift, std::int64_t slot_shift)
      : shift_(own_shift) {
    const In nan(std::numeric_limits<float>::quiet_NaN());
    const auto size = static_cast<std::int64_t>(sizeof(In));
    const std::int64_t slot = round_up(count * size, 16) / size + slot_shift;
    own_.assign(static_cast<std::size_t>(shift_ + count + 8), nan);
    others_.assign(static_cast<std::size_t>(slot * ranks), nan);
    for (int r = 0; r < ranks; ++r) {
      const std::vector<In> values = contribution<In>(r, count);
      std::copy(values.begin(), values.end(),
                r == rank ? own_.begin() + shift_ : others_.begin() + exchange_slot(r, rank) * slot);
    }
    view_ = {own(), others_.data(), slot * size, rank, ranks};
  }
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

  In* own() { return own_.data() + shift_; }
  const RankSources& view() const { return view_; }

 private:
  std::int64_t shift_;
  std::vector<In> own_, others_;  // malloc's memory begins on 16 bytes
  RankSources view_;
};

struct Case {
  std::int64_t count;
  int ranks, rank;
  std::int64_t own_shift, slot_shift, out_shift;
  bool accumulate;
  ThreadOrder order;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << c.count << " elements, rank " << c.rank << " of " << c.ranks << ", shifts " << c.own_shift << " "
      << c.slot_shift << " " << c.out_shift << ", accumulate " << c.accumulate << ", order "
      << static_cast<int>(c.order);
}

template <class In, class Out>
void check(const Case& c) {
  Sources<In> sources(c.ranks, c.rank, c.count, c.own_shift, c.slot_shift);
  const std::int64_t guard = 9;
  std::vector<Out> out = contribution<Out>(77, c.out_shift + c.count + guard), expected = out;
  for (std::int64_t i = 0; i < c.count; ++i) {
    Out& e = expected[static_cast<std::size_t>(c.out_shift + i)];
    e = reduced<In>(c.ranks, i, e, c.accumulate);
  }
  CUstream_st stream{c.order};
  rank_sum_work(dtype_of<In>(), dtype_of<Out>(), c.accumulate, sources.view(), out.data() + c.out_shift,
                c.count)(&stream);
  EXPECT_TRUE(same_bits(out, expected)) << ::testing::PrintToString(c);
}

/// Every two of: count, ranks, which of them, what is not aligned, accumulate, order.
template <class In, class Out>
void check_all() {
  constexpr std::int64_t counts[] = {1, 7, 8, 19, under_tsan ? 300 : 2048, under_tsan ? 601 : 5001};
  constexpr int ranks[] = {1, 2, 5, 16};
  for (const auto& row : Pairwise({6, 4, 3, 4, 2, 3}).rows()) {
    const int of = ranks[row[1]], place = row[2] == 0 ? 0 : row[2] == 1 ? of / 2 : of - 1;
    check<In, Out>(
        {counts[row[0]], of, place, row[3] == 1, row[3] == 2, row[3] == 3, row[4] == 1, orders[row[5]]});
  }
}

TEST(CudaRankSum, OfFp32) {
  check_all<float, float>();
  check_all<float, bf16>();
  check_all<float, f16>();
  check_all<float, double>();
}
TEST(CudaRankSum, OfBf16) {
  check_all<bf16, float>();
  check_all<bf16, bf16>();
  check_all<bf16, double>();
}
TEST(CudaRankSum, OfFp16) {
  check_all<f16, f16>();
  check_all<f16, float>();
}
TEST(CudaRankSum, OfFp64) {
  check_all<double, float>();
  check_all<double, bf16>();
  check_all<double, double>();
}

TEST(CudaRankSum, InPlace) {
  for (const std::int64_t count : {5, 3001}) {
    Sources<float> sources(3, 1, count, 0, 0);
    CUstream_st stream;
    rank_sum_work(DType::f32, DType::f32, false, sources.view(), sources.own(), count)(&stream);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sources.own()[i], serial_sum<float>(3, i)) << i;
  }
}

/// More elements than there are threads: they take further ones in turn.
TEST(CudaRankSum, OfMoreThanTheThreads) {
  if (under_tsan) GTEST_SKIP() << "a million threads";
  check<bf16, bf16>({4096 * 256 + 300, 2, 0, 1, 0, 0, false, ThreadOrder::forward});
}

TEST(CudaRankSum, OfNothing) {
  Sources<float> sources(2, 0, 0, 0, 0);
  float out = 3;
  CUstream_st stream;
  rank_sum_work(DType::f32, DType::f32, false, sources.view(), &out, 0)(&stream);
  EXPECT_EQ(out, 3);
}

/// Infinities, NaN, and what is too large or too small for the result: as the host has it.
TEST(CudaRankSum, OfEveryNumberOf16Bits) {
  constexpr std::int64_t count = 1 << 16;
  std::vector<f16> own(count), other(count), on_host(count), on_gpu(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    own[at].bits = static_cast<std::uint16_t>(i);
    other[at].bits = static_cast<std::uint16_t>(i * 40503);
  }
  const RankSources sources{own.data(), other.data(), 2 * count, 0, 2};
  CUstream_st stream;
  rank_sum_work(DType::f16, DType::f16, false, sources, on_gpu.data(), count)(&stream);
  rank_sum_work(DType::f16, DType::f16, false, sources, on_host.data(), count)(nullptr);
  for (std::size_t i = 0; i < on_host.size(); ++i)
    ASSERT_TRUE(on_host[i].bits == on_gpu[i].bits ||
                (std::isnan(float(on_host[i])) && std::isnan(float(on_gpu[i]))))
        << own[i] << " + " << other[i];
}

TEST(CudaRankSum, OtherTypesAreRefused) {
  const RankSources none{nullptr, nullptr, 0, 0, 1};
  EXPECT_THROW(rank_sum_work(DType::i32, DType::f32, false, none, nullptr, 1), Error);
  EXPECT_THROW(rank_sum_work(DType::bf16, DType::f16, false, none, nullptr, 1), Error);
}

TEST(CudaCopy, CopiesAllBytes) {
  const std::vector<float> from = contribution<float>(3, 100);
  std::vector<float> to(101, 5.0f), expected = from;
  expected.push_back(5.0f);
  CUstream_st stream;
  copy_work(to.data(), from.data(), 400)(&stream);
  EXPECT_TRUE(same_bits(to, expected));
}

}  // namespace
}  // namespace ztrain::runtime::rank_sum_test
