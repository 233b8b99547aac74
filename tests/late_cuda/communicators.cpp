// NCCL's communicators without a GPU: the product's, over an NCCL for tests. What CPU ranks give, bit for
// bit.
#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "runtime/comm/nccl_backend.hpp"
#include "tests/late_cuda/late_cuda.hpp"
#include "tests/late_cuda/late_nccl.hpp"
#include "tests/support/comm_checks.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::communicators_test {

using namespace ztrain::runtime;
using namespace ztrain::test;

namespace {

constexpr Queue gather_queue = 1, reduce_queue = 2;

std::unique_ptr<Device> fresh_device(const late_nccl::Options& options = {}) {
  late_nccl::configure(options);
  late_cuda::restart({.seed = 31 + static_cast<std::uint64_t>(session().rank()), .runs_when_idle = true});
  return make_device(session().local_rank());
}

std::unique_ptr<CommGroup> group(Via via = Via::late, const late_nccl::Options& options = {},
                                 double patience = 300) {
  const NcclOptions nccl{.nccl_sums = via == Via::late_sums, .patience = patience, .of_one = true};
  return std::make_unique<CommGroup>(via, fresh_device(options), [&](Device& on) {
    return std::make_unique<NcclBackend>(session(), on, nccl);
  });
}

class Communicators : public testing::TestWithParam<Via> {
 protected:
  void TearDown() override {
    group_.reset();
    EXPECT_EQ(late_nccl::communicators(), 0) << "not given back";
    EXPECT_EQ(late_nccl::failure(), "");
  }
  CommGroup& g() { return *group_; }

 private:
  std::unique_ptr<CommGroup> group_ = group(GetParam());
};

INSTANTIATE_TEST_SUITE_P(, Communicators, testing::Values(Via::late, Via::late_sums),
                         [](const auto& via) { return test::name_of(via.param); });

TEST_P(Communicators, Move) {
  check_all_gather(g());
  check_broadcast(g());
  check_all_to_all(g());
  check_all_to_all_rows(g());
  check_shifts(g());
}

TEST_P(Communicators, ReduceScatter) {
  check_reduce_scatters<float>(g());
  check_reduce_scatters<bf16>(g());
  check_reduce_scatters<double>(g());
  for (const bool accumulate : {false, true}) {
    check_reduce_scatter<f16, f16>(g(), 257, accumulate);
    check_reduce_scatter<f16, float>(g(), 5001, accumulate);
    check_reduce_scatter<float, f16>(g(), 7, accumulate);
    check_reduce_scatter<float, float>(g(), 300, accumulate, 1001);
    check_reduce_scatter<bf16, float>(g(), 256, accumulate, 1024);
    check_reduce_scatter<bf16, bf16>(g(), 7, accumulate, 8);
  }
}

TEST_P(Communicators, AllReduceAnyCount) {
  for (const std::int64_t count : {0, 1, 2, 3, 5, 8, 4099})
    for (const bool in_place : {true, false}) {
      check_all_reduce<float>(g(), count, in_place);
      check_all_reduce<bf16>(g(), count, in_place);
      check_all_reduce<f16>(g(), count, in_place);
    }
}

TEST_P(Communicators, PiecesOfLongMessagesKeepTheirOrder) {
  check_reduce_scatter<float, float>(g(), 200'000, true);
  check_all_reduce<bf16>(g(), 400'001, true);
}

TEST_P(Communicators, WorkOfAQueueIsInOrderAndTheHostIsNot) {
  const std::int64_t count = 1000, bytes = count * 4;
  const DeviceArray<float> shard(*g().device, count, 1.0f), full(*g().device, count * g().size, 0.0f),
      sum(*g().device, count, 0.0f);
  const DeviceArray<std::byte> workspace(*g().device, reduce_scatter_workspace(g().size, DType::f32, count),
                                         std::byte{0});
  const auto gather = g().comm.all_gather(shard.data(), full.data(), bytes);
  const auto reduce =
      g().comm.reduce_scatter(full.data(), DType::f32, sum.data(), DType::f32, count, true, workspace.data());
  EXPECT_TRUE(gather->on_device());
  for (int step = 0; step < 3; ++step) {
    gather->start();
    reduce->start();
  }
  reduce->wait();
  EXPECT_EQ(sum.read()[999], 3.0f * static_cast<float>(g().size));
}

TEST(CommunicatorsAlone, MessagesGoToTheNeighbour) {
  if (session().size() == 1) GTEST_SKIP() << "nobody to talk to";
  const auto g = group(Via::late, {}, 20);
  const int last = g->size - 1;
  const auto check = [&](int from, int to) {
    Communicator* const pair = g->mesh.neighbour(Axis::shard, from, to, gather_queue);
    ASSERT_EQ(pair != nullptr, g->rank == 0 || g->rank == last);
    if (pair == nullptr) return;
    EXPECT_EQ(pair->rank(), g->rank == from ? 0 : 1);
    const DeviceArray<float> data(*g->device, contribution<float>(g->rank, 99));
    const auto message = g->rank == from ? pair->send(data.data(), 396, 1) : pair->recv(data.data(), 396, 0);
    for (int step = 0; step < 3; ++step) run(message);
    EXPECT_TRUE(same_bits(data.read(), contribution<float>(from, 99)));
    EXPECT_EQ(pair->bytes_sent(), g->rank == from ? 3 * 396 : 0);
  };
  check(0, last);
  g->mesh.over(Axis::shard, gather_queue);  // what follows on the queue is split off it
  check(last, 0);
}

/// A mesh of two axes where the ranks suffice.
MeshShape two_axes() {
  MeshShape shape;
  shape[Axis::replicate] = session().size() / 2;
  shape[Axis::shard] = 2;
  return shape;
}

float sum_of_ranks(Mesh& mesh, Device& device, AxisSet axes, Queue queue) {
  Communicator& comm = mesh.over(axes, queue);
  const DeviceArray<float> rank(device, 1, static_cast<float>(session().rank())), sum(device, 1, 0.0f);
  const DeviceArray<std::byte> workspace(device, all_reduce_workspace(comm.size(), DType::f32, 1),
                                         std::byte{0});
  run(comm.all_reduce(rank.data(), sum.data(), DType::f32, 1, workspace.data()));
  return sum.read()[0];
}

TEST(CommunicatorsAlone, TakeNoMoreMultiprocessorsThanTheDeckSays) {
  const auto device = fresh_device();
  Mesh mesh(session(), CommGroup::shape(),
            std::make_unique<NcclBackend>(session(), *device,
                                          NcclOptions{.max_ctas = 16, .max_ctas_pairs = 4, .of_one = true}));
  mesh.over(Axis::shard, gather_queue);
  EXPECT_EQ(late_nccl::max_ctas(), std::set{16});
  if (session().size() == 1) return;
  mesh.over(Axis::shard, reduce_queue);
  const bool paired = mesh.neighbour(Axis::shard, 0, 1) != nullptr;
  EXPECT_EQ(late_nccl::max_ctas(), paired ? (std::set{4, 16}) : std::set{16});
}

/// Makes the groups in this order, on two queues.
void check_groups(const std::vector<AxisSet>& order, int channel_sets) {
  {
    const auto device = fresh_device();
    Mesh mesh(session(), two_axes(), std::make_unique<NcclBackend>(session(), *device, NcclOptions{}));
    for (const Queue queue : {gather_queue, reduce_queue})
      for (const AxisSet axes : order) {
        float expected = 0;
        for (const int member : mesh.coordinate().group(axes)) expected += static_cast<float>(member);
        EXPECT_EQ(sum_of_ranks(mesh, *device, axes, queue), expected) << to_string(axes);
      }
    EXPECT_EQ(late_nccl::communicators(), 6);
    EXPECT_EQ(late_nccl::channel_sets(), channel_sets);
  }
  EXPECT_EQ(late_nccl::communicators(), 0);
}

TEST(CommunicatorsAlone, GroupsOfAQueueShareChannels) {
  if (session().size() < 4) GTEST_SKIP() << "needs a mesh of two axes";
  const AxisSet all = Axis::replicate | Axis::shard, shard(Axis::shard), replicate(Axis::replicate);
  check_groups({all, shard, replicate}, 2);
  check_groups({shard, all, replicate}, 4);  // the first is of some ranks, so no parent to others
}

TEST(CommunicatorsAlone, QueuesKeepTheHostsOrderOnADeviceThatHoldsOneKernel) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto g = group(Via::late, {.patience = 30, .one_at_a_time = true});
    Communicator &gathers = g->mesh.over(Axis::shard, gather_queue),
                 &reductions = g->mesh.over(Axis::shard, reduce_queue);
    const std::int64_t count = 100;
    const DeviceArray<float> shard(*g->device, count, 2.0f), full(*g->device, count * g->size, 0.0f),
        data(*g->device, count, 1.0f);
    const DeviceArray<std::byte> workspace(*g->device, all_reduce_workspace(g->size, DType::f32, count),
                                           std::byte{0});
    const auto gather = gathers.all_gather(shard.data(), full.data(), count * 4);
    const auto reduce = reductions.all_reduce(data.data(), data.data(), DType::f32, count, workspace.data());
    for (int step = 0; step < 3; ++step) {
      gather->start();
      reduce->start();
    }
    ASSERT_NO_THROW(g->device->finish());
    EXPECT_EQ(data.read()[99], static_cast<float>(g->size * g->size * g->size));
    EXPECT_EQ(full.read().back(), 2.0f);
  }
}

TEST(CommunicatorsAlone, AGraphRunsThemAgain) {
  const auto g = group();
  const std::int64_t count = 50;
  DeviceArray<float> data(*g->device, count, 1.0f);
  const DeviceArray<std::byte> workspace(*g->device, all_reduce_workspace(g->size, DType::f32, count),
                                         std::byte{0});
  const auto reduce = g->comm.all_reduce(data.data(), data.data(), DType::f32, count, workspace.data());
  g->device->begin_capture(compute_queue);
  reduce->start();
  reduce->start();
  const Graph graph = g->device->end_capture(compute_queue);
  EXPECT_EQ(data.read()[0], 1.0f);
  g->device->launch(graph, compute_queue);
  g->device->launch(graph, compute_queue);
  g->device->finish();
  EXPECT_EQ(data.read()[49], std::pow(static_cast<float>(g->size), 4.0f));
  g->device->destroy(graph);
}

/// Gathers in a region that the communicators were told of, one made before and one after.
void check_registered(CommGroup& g, bool on_all) {
  const std::int64_t count = 64, bytes = count * 4;
  const std::vector<float> begin = contribution<float>(0, count * (g.size + 1));
  const DeviceArray<float> region(*g.device, begin);
  std::vector<float> expected;
  for (int r = 0; r <= g.size; ++r) expected.insert(expected.end(), begin.end() - count, begin.end());
  g.mesh.register_memory(region.data(), bytes * (g.size + 1));
  for (const Queue queue : {Queue{0}, gather_queue}) {
    Communicator& comm = g.mesh.over(Axis::shard, queue);
    run(comm.all_gather(region.data() + count * g.size, region.data(), bytes));
    EXPECT_TRUE(same_bits(region.read(), expected));
    EXPECT_NO_THROW(comm.check());
  }
  EXPECT_EQ(late_nccl::registrations(), on_all ? 2 : 0);
}

TEST(CommunicatorsAlone, MemoryIsRegisteredOnAllRanks) {
  if (session().size() == 1) GTEST_SKIP() << "nobody to differ from";
  check_registered(*group(), true);
  EXPECT_EQ(late_nccl::failure(), "");
}

TEST(CommunicatorsAlone, MemoryThatOneRankCannotRegisterIsRegisteredOnNone) {
  if (session().size() == 1) GTEST_SKIP() << "nobody to differ from";
  const bool last = session().rank() == session().size() - 1;
  check_registered(
      *group(Via::late, {.fault = last ? late_nccl::Fault::registration : late_nccl::Fault::none}), false);
  EXPECT_EQ(late_nccl::failure(), last ? "no more memory can be registered" : "");
}

/// Throws on this rank; its text.
std::string text_of_failure(const late_nccl::Options& options, double patience) {
  const auto device = fresh_device(options);
  const double begin = now();
  std::string text;
  try {
    MeshShape shape;
    shape[Axis::shard] = session().size();
    Mesh mesh(
        session(), shape,
        std::make_unique<NcclBackend>(session(), *device, NcclOptions{.patience = patience, .of_one = true}));
    mesh.over(Axis::shard);
    ADD_FAILURE() << "a communicator was made";
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_LT(now() - begin, 30);
  EXPECT_EQ(late_nccl::communicators(), 0) << "an error gives it back";
  return text;
}

TEST(CommunicatorsAlone, AFailureToBeginNamesItsCauseOnEveryRank) {
  const bool last = session().rank() == session().size() - 1;
  const std::string begin =
      text_of_failure({.fault = last ? late_nccl::Fault::init : late_nccl::Fault::none}, 60);
  EXPECT_NE(begin.find("ncclCommInitRankConfig failed"), std::string::npos) << begin;
  EXPECT_NE(begin.find(fmt::format("rank {} cannot map memory of its GPU", session().size() - 1)),
            std::string::npos)
      << begin;
  const std::string id = text_of_failure({.fault = late_nccl::Fault::unique_id}, 60);
  EXPECT_NE(id.find("ncclGetUniqueId failed"), std::string::npos) << id;
  EXPECT_NE(id.find("no network interface was found"), std::string::npos) << id;
}

TEST(CommunicatorsAlone, AnNcclWithoutAnOrderIsRefused) {
  const auto device = fresh_device({.version = 22601});
  const auto make = [&] { NcclBackend(session(), *device, NcclOptions{}); };
  EXPECT_NE(test::error_of(make).find("NCCL 2.26.1 is loaded, and ztrain needs 2.26.2"), std::string::npos)
      << test::error_of(make);
  late_nccl::configure({.version = 22602});
  EXPECT_EQ(test::error_of(make), "no error");
}

TEST(CommunicatorsAlone, ASplitThatFailsEndsItsParent) {
  const auto device = fresh_device();
  const int size = session().size(), rank = session().rank(), last = size - 1;
  MeshShape shape;
  shape[Axis::shard] = size;
  Mesh mesh(session(), shape,
            std::make_unique<NcclBackend>(session(), *device, NcclOptions{.patience = 1, .of_one = true}));
  mesh.over(Axis::shard);
  late_nccl::configure({.fault = rank == last ? late_nccl::Fault::split : late_nccl::Fault::none});
  EXPECT_THROW(mesh.over(Axis::replicate | Axis::shard), Error);
  // Else NCCL, still at work, would write to what is gone.
  EXPECT_EQ(late_nccl::communicators(), 0);
  EXPECT_NO_THROW(mesh.check()) << "a group that was not made is none";
  mesh.abort();
}

TEST(CommunicatorsAlone, ARankThatDoesNotComeIsWaitedForSoLongAndNoLonger) {
  const bool last = session().rank() == session().size() - 1;
  const std::string text =
      text_of_failure({.fault = last ? late_nccl::Fault::absence : late_nccl::Fault::none}, 1);
  EXPECT_NE(text.find("was not done within 1 s: a rank is missing"), std::string::npos) << text;
}

}  // namespace
}  // namespace ztrain::communicators_test
