// Communicators on memory that the host cannot reach: order with the device's work, staging memory, queues.
#include <gtest/gtest.h>

#include "layout/comm_cost.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "telemetry/allocation_count.hpp"
#include "tests/support/comm_group.hpp"

namespace ztrain::comm_staged_test {

using namespace ztrain::runtime;
using namespace ztrain::test;

namespace {

constexpr std::int64_t count = 501, bytes = count * 4;
constexpr Queue gather_queue = 1, reduce_queue = 2;

std::vector<float> all_contributions(int size) {
  std::vector<float> all;
  for (int r = 0; r < size; ++r) {
    const auto one = contribution<float>(r, count);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST(CommStaged, WorkOfEveryQueueSeesWhatWasWaitedFor) {
  CommGroup g(Via::deferred);
  const DeviceArray<float> shard(*g.device, contribution<float>(g.rank, count));
  for (int repeat = 0; repeat < 20; ++repeat) {
    const DeviceArray<float> full(*g.device, count * g.size, 0.0f), copied(*g.device, count * g.size, 0.0f);
    const auto gather = g.mesh.over(Axis::shard, gather_queue).all_gather(shard.data(), full.data(), bytes);
    EXPECT_FALSE(gather->on_device());
    if (repeat % 2 == 0) {
      run(gather);
    } else {
      gather->start();
      while (!gather->test()) continue;
    }
    const std::function<void()> copy = [&, work = copy_work(copied.data(), full.data(), bytes * g.size)] {
      work(nullptr);
    };
    g.device->submit(compute_queue, copy);
    g.device->finish();
    EXPECT_TRUE(same_bits(copied.read(), all_contributions(g.size)));
  }
}

TEST(CommStaged, StagingIsAsLargeAsTheLargestOfEachQueueAndGrows) {
  CommGroup g(Via::deferred);
  EXPECT_EQ(g.mesh.staging_bytes(), 0);
  Communicator& comm = g.mesh.over(Axis::shard, gather_queue);
  const DeviceArray<float> shard(*g.device, contribution<float>(g.rank, count));
  DeviceArray<float> few(*g.device, 16 * g.size, 0.0f);
  const DeviceArray<float> many(*g.device, count * g.size, 0.0f);
  const auto small = comm.all_gather(shard.data(), few.data(), 64);
  EXPECT_EQ(g.mesh.staging_bytes(), 64 * g.size);
  run(small);
  const auto large = comm.all_gather(shard.data(), many.data(), bytes);
  const std::int64_t one_queue = g.mesh.staging_bytes();
  EXPECT_GE(one_queue, bytes * g.size);
  EXPECT_LT(one_queue, bytes * g.size + 64);
  run(large);  // in other memory than before
  EXPECT_TRUE(same_bits(many.read(), all_contributions(g.size)));
  const auto before = few.read();
  few.write(std::vector<float>(before.size(), 0.0f));
  run(small);
  EXPECT_TRUE(same_bits(few.read(), before));
  EXPECT_EQ(before[16], element<float>(1, 0));
  EXPECT_EQ(g.mesh.staging_bytes(), one_queue);
  const auto message = g.mesh.over(Axis::shard, reduce_queue).broadcast(few.data(), 64, 0);
  EXPECT_EQ(g.mesh.staging_bytes(), one_queue + 64);
}

TEST(CommStaged, QueuesDoNotWaitForEachOther) {
  CommGroup g(Via::deferred);
  Communicator &gathers = g.mesh.over(Axis::shard, gather_queue),
               &reductions = g.mesh.over(Axis::shard, reduce_queue);
  EXPECT_NE(&gathers, &reductions);
  const DeviceArray<float> shard(*g.device, contribution<float>(g.rank, count));
  const DeviceArray<float> full(*g.device, count * g.size, 0.0f);
  const DeviceArray<float> data(*g.device, contribution<float>(g.rank, count));
  const auto gather = gathers.all_gather(shard.data(), full.data(), bytes);
  const auto reduce = reductions.all_reduce(data.data(), data.data(), DType::f32, count, nullptr);
  gather->start();
  EXPECT_THROW(gathers.all_gather(shard.data(), full.data(), bytes)->start(), Error) << "one per queue";
  reduce->start();
  if (g.rank % 2 == 0) {
    gather->wait();
    reduce->wait();
  } else {
    reduce->wait();
    gather->wait();
  }
  EXPECT_TRUE(same_bits(full.read(), all_contributions(g.size)));
  const auto sums = data.read();
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(sums[static_cast<std::size_t>(i)], serial_sum<float>(g.size, i));
  const std::int64_t expected =
      all_gather_sent(g.size, bytes) + all_reduce_sent(g.size, g.rank, DType::f32, count);
  ASSERT_EQ(g.mesh.bytes_sent().size(), 1u) << "queues are one line";
  EXPECT_EQ(g.mesh.bytes_sent()[0].bytes, expected);
}

TEST(CommStaged, CpuRanksShareACommunicatorAmongQueues) {
  CommGroup g(Via::mpi);
  EXPECT_EQ(&g.mesh.over(Axis::shard, gather_queue), &g.mesh.over(Axis::shard, reduce_queue));
  EXPECT_EQ(g.mesh.staging_bytes(), 0);
  EXPECT_EQ(g.mesh.describe(), "MPI");
  EXPECT_FALSE(g.comm.register_memory(&g, sizeof g));
  EXPECT_NO_THROW(g.mesh.check());
}

TEST(CommStaged, AGroupOfOneIsWorkOfItsQueue) {
  CommGroup g(Via::deferred);
  Communicator& alone = g.mesh.over(Axis::tensor, reduce_queue);
  const DeviceArray<bf16> from(*g.device, contribution<bf16>(g.rank, count));
  const DeviceArray<float> sum(*g.device, contribution<float>(9, count)), copied(*g.device, count, 0.0f);
  const auto reduce =
      alone.reduce_scatter(from.data(), DType::bf16, sum.data(), DType::f32, count, true, nullptr);
  const auto copy = alone.all_gather(sum.data(), copied.data(), bytes);
  EXPECT_TRUE(reduce->on_device());
  reduce->start();  // nobody waits: the queue orders them
  copy->start();
  copy->wait();
  EXPECT_TRUE(copy->test());
  const auto got = copied.read();
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(got[static_cast<std::size_t>(i)],
              element<float>(9, i) + static_cast<float>(element<bf16>(g.rank, i)));
}

TEST(CommStaged, NothingIsAllocatedAfterTheFirstStart) {
  CommGroup g(Via::staged);
  const DeviceArray<float> shard(*g.device, contribution<float>(g.rank, count));
  const DeviceArray<float> full(*g.device, count * g.size, 0.0f);
  std::vector<std::unique_ptr<Collective>> all;
  all.push_back(g.comm.all_gather(shard.data(), full.data(), bytes));
  all.push_back(
      g.comm.reduce_scatter(full.data(), DType::f32, shard.data(), DType::f32, count, true, nullptr));
  all.push_back(g.comm.all_reduce(shard.data(), full.data(), DType::f32, count, nullptr));
  for (auto& c : all) run(c);
  const telemetry::AllocationCount allocations;
  for (int step = 0; step < 3; ++step)
    for (auto& c : all) {
      c->start();
      c->wait();
    }
  EXPECT_EQ(allocations.calls(), 0);
}

}  // namespace
}  // namespace ztrain::comm_staged_test
