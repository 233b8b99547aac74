// NCCL's communicators, on machines with a GPU for each rank, or one rank: the same checks as on CPU ranks,
// bit for bit where ztrain forms the sums. And the sum over ranks on a GPU against the host's.
#include <gtest/gtest.h>

#include "runtime/comm/nccl_backend.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "tests/support/comm_checks.hpp"

namespace ztrain::comm_nccl_test {

using namespace ztrain::runtime;
using namespace ztrain::test;

namespace {

class CommNccl : public testing::Test {
 protected:
  void SetUp() override {
    config::Device options;
    options.communicator = "auto";
    auto device = session().agree("opening the GPU", [] { return make_device(session().local_rank()); });
    if (make_backend(session(), *device, options)->describe().substr(0, 4) != "NCCL")
      GTEST_SKIP() << "ranks share a GPU";
    group_ = std::make_unique<CommGroup>(Via::nccl, std::move(device), [](Device& on) {
      return std::make_unique<NcclBackend>(session(), on, NcclOptions{.of_one = true});
    });
  }
  CommGroup& g() { return *group_; }

 private:
  std::unique_ptr<CommGroup> group_;
};

/// count elements of `sources` contributions, the own one at `rank`, on the device and on the host.
template <class In, class Out>
void check_sum(Device& device, int ranks, int rank, std::int64_t count, bool accumulate) {
  std::vector<In> others;
  for (int r = 0; r < ranks; ++r) {
    const auto one = contribution<In>(r, count);
    if (r != rank) others.insert(others.end(), one.begin(), one.end());
  }
  const std::vector<In> own = contribution<In>(rank, count);
  std::vector<Out> expected = contribution<Out>(40, count);
  const DeviceArray<In> own_there(device, own), others_there(device, others);
  const DeviceArray<Out> out_there(device, expected);
  const std::int64_t slot = count * static_cast<std::int64_t>(sizeof(In));
  const DType in = dtype_of<In>(), out = dtype_of<Out>();
  host_rank_sum_work(in, out, accumulate, {own.data(), others.data(), slot, rank, ranks}, expected.data(),
                     count)(nullptr);
  const StreamWork sum =
      rank_sum_work(in, out, accumulate, {own_there.data(), others_there.data(), slot, rank, ranks},
                    out_there.data(), count);
  const std::function<void()> work = [&] { sum(device.native_stream(compute_queue)); };
  device.submit(compute_queue, work);
  device.finish();
  EXPECT_TRUE(same_bits(out_there.read(), expected)) << count << " elements of " << ranks << " ranks";
}

TEST_F(CommNccl, Moves) {
  check_all_gather(g());
  check_broadcast(g());
  check_all_to_all(g());
  check_all_to_all_rows(g());
  check_shifts(g());
  EXPECT_NO_THROW(g().mesh.check());
}

TEST_F(CommNccl, ReduceScatter) {
  check_reduce_scatters<float>(g());
  check_reduce_scatters<bf16>(g());
  check_reduce_scatters<double>(g());
  for (const bool accumulate : {false, true}) {
    check_reduce_scatter<f16, float>(g(), 5001, accumulate);
    check_reduce_scatter<float, float>(g(), 300, accumulate, 1001);
    check_reduce_scatter<bf16, float>(g(), 256, accumulate, 1024);
  }
}

TEST_F(CommNccl, AllReduce) {
  for (const std::int64_t count : {0, 1, 3, 8, 4099})
    for (const bool in_place : {true, false}) {
      check_all_reduce<float>(g(), count, in_place);
      check_all_reduce<bf16>(g(), count, in_place);
      check_all_reduce<f16>(g(), count, in_place);
    }
}

TEST_F(CommNccl, QueuesHaveCommunicatorsOfTheirOwn) {
  const DeviceArray<float> data(*g().device, 1000, 1.0f), shard(*g().device, 1000, 2.0f),
      full(*g().device, 1000 * g().size, 0.0f);
  Communicator &gathers = g().mesh.over(Axis::shard, 1), &reductions = g().mesh.over(Axis::shard, 2);
  const auto gather = gathers.all_gather(shard.data(), full.data(), 4000);
  const DeviceArray<std::byte> workspace(*g().device, all_reduce_workspace(g().size, DType::f32, 1000),
                                         std::byte{0});
  const auto reduce = reductions.all_reduce(data.data(), data.data(), DType::f32, 1000, workspace.data());
  for (int step = 0; step < 3; ++step) {
    gather->start();
    reduce->start();
  }
  g().device->finish();
  const auto sums = data.read();
  EXPECT_EQ(sums[999], static_cast<float>(g().size * g().size * g().size));
  EXPECT_EQ(full.read().back(), 2.0f);
}

/// Of a session of one rank the second is split off the first.
TEST_F(CommNccl, GroupsOfOneRank) {
  const auto mine = contribution<float>(g().rank, 1000);
  for (const Axis axis : {Axis::replicate, Axis::tensor}) {
    Communicator& comm = g().mesh.over(axis, 1);
    ASSERT_EQ(comm.size(), 1);
    const DeviceArray<float> from(*g().device, mine), to(*g().device, 1000, -1.0f);
    run(comm.all_gather(from.data(), to.data(), 4000));
    EXPECT_TRUE(same_bits(to.read(), mine));
    const DeviceArray<double> wide(*g().device, 1000, -1.0);
    run(comm.reduce_scatter(from.data(), DType::f32, wide.data(), DType::f64, 1000, false, nullptr, 0));
    EXPECT_EQ(wide.read()[999], static_cast<double>(mine[999]));
    EXPECT_EQ(comm.bytes_sent(), 0);
  }
}

TEST_F(CommNccl, SumsOverRanksHaveTheBitsOfTheHost) {
  for (const std::int64_t count : {1, 8, 4097, 65536})
    for (const bool accumulate : {false, true})
      for (const int ranks : {1, 2, 7}) {
        check_sum<bf16, float>(*g().device, ranks, ranks / 2, count, accumulate);
        check_sum<bf16, bf16>(*g().device, ranks, 0, count, accumulate);
        check_sum<f16, f16>(*g().device, ranks, ranks - 1, count, accumulate);
        check_sum<f16, float>(*g().device, ranks, 0, count, accumulate);
        check_sum<float, bf16>(*g().device, ranks, ranks / 2, count, accumulate);
        check_sum<float, f16>(*g().device, ranks, 0, count, accumulate);
        check_sum<double, float>(*g().device, ranks, 0, count, accumulate);
        check_sum<float, double>(*g().device, ranks, 0, count, accumulate);
      }
}

}  // namespace
}  // namespace ztrain::comm_nccl_test
