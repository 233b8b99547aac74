// Between start and completion a communication calls operator new nowhere.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "layout/comm_cost.hpp"
#include "runtime/comm/mesh_comms.hpp"
#include "telemetry/allocation_count.hpp"
#include "tests/support/mpi_main.hpp"

namespace ztrain::comm_allocations_test {

using namespace ztrain::runtime;

TEST(CommAllocations, NoneAfterPreparation) {
  MeshShape shape;
  shape[Axis::shard] = test::session().size();
  Mesh mesh(test::session(), shape, /*cut=*/1000);
  Communicator& comm = mesh.over(Axis::shard);
  const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
  const std::int64_t count = 3000;
  std::vector<std::vector<float>> buffers(
      16, std::vector<float>(static_cast<std::size_t>(count * comm.size()), 1.0f));
  const auto buffer = [&](int i) { return buffers[static_cast<std::size_t>(i)].data(); };
  std::vector<std::unique_ptr<Collective>> all;
  all.push_back(comm.all_gather(buffer(0), buffer(1), count * 4));
  all.push_back(comm.reduce_scatter(buffer(2), DType::f32, buffer(3), DType::bf16, count, true, buffer(4)));
  all.push_back(comm.all_reduce(buffer(5), buffer(5), DType::f32, count, buffer(6)));
  all.push_back(comm.all_reduce(buffer(7), buffer(7), DType::bf16, count, buffer(8)));
  all.push_back(comm.broadcast(buffer(9), count * 4, 0));
  all.push_back(comm.all_to_all(buffer(10), buffer(11), count * 4));
  const std::vector<std::int32_t> sizes(static_cast<std::size_t>(2 * comm.size()), 700);
  all.push_back(comm.all_to_all_rows(buffer(14), buffer(15), 1000, 12, sizes.data()));
  all.push_back(comm.recv(buffer(12), count * 4, previous));
  all.push_back(comm.send(buffer(13), count * 4, next));
  const telemetry::AllocationCount allocations;
  for (int step = 0; step < 3; ++step) {
    for (auto& c : all) c->start();
    while (!all.front()->test()) continue;
    for (auto& c : all) c->wait();
  }
  EXPECT_EQ(allocations.calls(), 0);
}

}  // namespace ztrain::comm_allocations_test
