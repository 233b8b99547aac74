// Collectives against serial arithmetic: every rank can compute what every other contributes.
#include <gtest/gtest.h>

#include "tests/support/comm_checks.hpp"

namespace ztrain::comm_test {

using namespace ztrain::runtime;
using namespace ztrain::test;

namespace {

class Comm : public testing::TestWithParam<Via> {};

INSTANTIATE_TEST_SUITE_P(, Comm, testing::Values(Via::mpi, Via::staged, Via::deferred),
                         [](const auto& via) { return test::name_of(via.param); });

TEST_P(Comm, AllGatherOutOfPlaceAndInPlace) {
  CommGroup g(GetParam());
  check_all_gather(g);
}

TEST_P(Comm, ReduceScatterSumsInRankOrder) {
  CommGroup g(GetParam());
  check_reduce_scatters<float>(g);
  check_reduce_scatters<bf16>(g);
  check_reduce_scatters<double>(g);
}

TEST_P(Comm, Fp16IsSummedInFp32) {
  CommGroup g(GetParam());
  for (const std::int64_t count : {1, 7, 256, 5001})
    for (const bool accumulate : {false, true}) {
      check_reduce_scatter<f16, f16>(g, count, accumulate);
      check_reduce_scatter<f16, float>(g, count, accumulate);
      check_reduce_scatter<float, f16>(g, count, accumulate);
    }
}

TEST_P(Comm, ReduceScatterOfPartsOfTheSlots) {
  CommGroup g(GetParam());
  for (const bool accumulate : {false, true}) {
    check_reduce_scatter<float, float>(g, 300, accumulate, 1001);
    check_reduce_scatter<bf16, float>(g, 7, accumulate, 8);
    check_reduce_scatter<f16, f16>(g, 256, accumulate, 257);
  }
}

TEST_P(Comm, ReduceScatterIntoItsOwnSlot) {
  CommGroup g(GetParam());
  const std::int64_t count = 333;
  const DeviceArray<float> full(*g.device, contribution<float>(g.rank, count * g.size));
  const DeviceArray<std::byte> workspace(*g.device, reduce_scatter_workspace(g.size, DType::f32, count),
                                         std::byte{0});
  run(g.comm.reduce_scatter(full.data(), DType::f32, full.data() + g.rank * count, DType::f32, count, false,
                            workspace.data()));
  const auto after = full.read();
  for (std::int64_t i = g.rank * count; i < (g.rank + 1) * count; ++i)
    EXPECT_EQ(after[static_cast<std::size_t>(i)], serial_sum<float>(g.size, i));
}

// Sixteen times 1 + 2^-8: each partial sum in bf16 would drop the small part.
TEST_P(Comm, Bf16IsSummedInFp32) {
  CommGroup g(GetParam());
  if (g.size < 4) GTEST_SKIP() << "needs a sum of four";
  const DeviceArray<bf16> full(*g.device, g.size, bf16(g.rank == 0 ? 256.0f : 0.5f));
  const DeviceArray<std::byte> workspace(*g.device, reduce_scatter_workspace(g.sums, DType::bf16, 1),
                                         std::byte{0});
  const DeviceArray<bf16> sum(*g.device, 1, bf16(0.0f));
  run(g.comm.reduce_scatter(full.data(), DType::bf16, sum.data(), DType::bf16, 1, false, workspace.data()));
  // 256 + 3 * 0.5 = 257.5, whose nearest bf16 is 258; rounding after each addition stays at 256.
  EXPECT_EQ(static_cast<float>(sum.read()[0]), 258.0f);
}

TEST_P(Comm, AllReduceAnyCount) {
  CommGroup g(GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 5, 8, 4099})
    for (const bool in_place : {true, false}) {
      check_all_reduce<float>(g, count, in_place);
      check_all_reduce<bf16>(g, count, in_place);
      check_all_reduce<f16>(g, count, in_place);
      check_all_reduce<double>(g, count, in_place);
    }
}

TEST_P(Comm, BroadcastFromEveryRoot) {
  CommGroup g(GetParam());
  check_broadcast(g);
}

TEST_P(Comm, AllToAllTransposes) {
  CommGroup g(GetParam());
  check_all_to_all(g);
  check_all_to_all_rows(g);
  check_shifts(g);
}

// All of the above arithmetic with messages of at most 100 bytes: parts end inside an element.
TEST_P(Comm, CutMessagesArriveWhole) {
  CommGroup g(GetParam(), /*cut=*/100);
  check_reduce_scatters<bf16>(g);
  check_reduce_scatters<double>(g);
  check_all_reduce<float>(g, 4099, true);
  check_all_to_all_rows(g);
  const DeviceArray<double> shard(*g.device, contribution<double>(g.rank, 777)),
      full(*g.device, 777 * g.size, 0.0);
  run(g.comm.all_gather(shard.data(), full.data(), 777 * 8));
  const auto got = full.read();
  for (int r = 0; r < g.size; ++r)
    for (std::int64_t i = 0; i < 777; ++i)
      ASSERT_EQ(got[static_cast<std::size_t>(r * 777 + i)], element<double>(r, i));
}

TEST_P(Comm, AMessageArrives) {
  CommGroup g(GetParam());
  if (g.size == 1) {
    EXPECT_THROW(g.comm.send(nullptr, 0, 0), Error);
    EXPECT_THROW(g.comm.recv(nullptr, 0, 0), Error);
    return;
  }
  const DeviceArray<float> out(*g.device, contribution<float>(g.rank, 50)), in(*g.device, 50, 0.0f);
  if (g.rank % 2 == 0 && g.rank + 1 < g.size) run(g.comm.send(out.data(), 200, g.rank + 1));
  if (g.rank % 2 == 1) {
    run(g.comm.recv(in.data(), 200, g.rank - 1));
    EXPECT_TRUE(same_bits(in.read(), contribution<float>(g.rank - 1, 50)));
  }
  EXPECT_THROW(g.comm.send(nullptr, 0, g.rank), Error);
  EXPECT_THROW(g.comm.recv(nullptr, 0, g.size), Error);
  EXPECT_THROW(g.comm.broadcast(nullptr, 0, g.size), Error);
}

TEST_P(Comm, OtherTypesAreRefused) {
  CommGroup g(GetParam());
  const DeviceArray<std::int64_t> array(*g.device, 1, 0);
  std::int64_t* const data = array.data();
  EXPECT_THROW(g.comm.all_reduce(data, data, DType::i64, 1, nullptr), Error);
  EXPECT_THROW(g.comm.reduce_scatter(data, DType::f32, data, DType::u8, 1, false, nullptr), Error);
  EXPECT_THROW(g.comm.reduce_scatter(data, DType::f16, data, DType::bf16, 1, false, nullptr), Error);
}

}  // namespace
}  // namespace ztrain::comm_test
