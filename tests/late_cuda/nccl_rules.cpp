// That the NCCL for tests finds what it is there to find: each test does something that a GPU would answer
// with a hang or with wrong numbers.
#include <gtest/gtest.h>
#include <nccl.h>

#include "base/clock.hpp"
#include "runtime/comm/nccl_backend.hpp"
#include "runtime/comm/nccl_handle.hpp"
#include "tests/late_cuda/late_cuda.hpp"
#include "tests/late_cuda/late_nccl.hpp"
#include "tests/support/comm_group.hpp"

namespace ztrain::nccl_rules_test {

using namespace ztrain::runtime;
using namespace ztrain::test;

namespace {

constexpr Queue other_queue = 1;

std::unique_ptr<CommGroup> group(const late_nccl::Options& options = {}) {
  late_nccl::configure(options);
  late_cuda::restart({.seed = 7 + static_cast<std::uint64_t>(session().rank()), .runs_when_idle = true});
  auto made = std::make_unique<CommGroup>(Via::late, make_device(session().local_rank()), [](Device& on) {
    return std::make_unique<NcclBackend>(session(), on, NcclOptions{.patience = 60});
  });
  session().barrier();  // or one rank's failure reaches another that still joins the communicator
  return made;
}

/// Every rank hears of it within seconds: what it waits for throws, its communicator has failed, and the text
/// names what is wrong.
void expect_failure(CommGroup& g, const std::function<void()>& f, const std::vector<std::string>& parts) {
  const double begin = now();
  EXPECT_THROW(f(), Error);
  EXPECT_THROW(g.mesh.check(), Error);
  const std::string text = late_nccl::failure();
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  EXPECT_LT(now() - begin, 30);
}

class NcclRules : public testing::Test {
 protected:
  void SetUp() override {
    if (session().size() == 1) GTEST_SKIP() << "needs two ranks";
  }
  bool odd() const { return session().rank() % 2 == 1; }
};

TEST_F(NcclRules, CollectivesInAnotherOrderOnOneRank) {
  const auto g = group();
  const DeviceArray<std::byte> from(*g->device, 64, std::byte{1}), to(*g->device, 64 * g->size, std::byte{2});
  const auto gather = g->comm.all_gather(from.data(), to.data(), 64);
  const auto broadcast = g->comm.broadcast(from.data(), 64, 0);
  const auto both = [&] {
    (odd() ? gather : broadcast)->start();
    (odd() ? broadcast : gather)->start();
    gather->wait();
  };
  expect_failure(*g, both,
                 {"launch 1 of collectives differs: rank", "ncclAllGather of 64 elements of type 1",
                  "ncclBroadcast of 64 elements of type 1, root 0"});
}

TEST_F(NcclRules, ACountThatDiffersOnOneRank) {
  const auto g = group();
  const DeviceArray<std::byte> from(*g->device, 64, std::byte{1}), to(*g->device, 64 * g->size, std::byte{2});
  const auto gather = g->comm.all_gather(from.data(), to.data(), odd() ? 64 : 60);
  expect_failure(*g, [&] { run(gather); },
                 {"ncclAllGather of 60 elements of type 1", "ncclAllGather of 64 elements of type 1"});
}

TEST_F(NcclRules, ATypeThatDiffersOnOneRank) {
  const auto g = group();
  const DeviceArray<double> from(*g->device, 64 * g->size, 1.0), to(*g->device, 64, 2.0);
  const auto sum = g->comm.reduce_scatter(from.data(), odd() ? DType::f32 : DType::f64, to.data(),
                                          odd() ? DType::f32 : DType::f64, 64, false, nullptr);
  expect_failure(*g, [&] { run(sum); },
                 {"ncclReduceScatter of 64 elements of type 7 (op 0)", "of type 8 (op 0)"});
}

// A count that the ranks do not divide is a group of ncclReduce, one of another kind a single call.
TEST_F(NcclRules, AGroupOnOneRankAndASingleCallOnAnother) {
  const auto g = group();
  const std::int64_t count = odd() ? 4 * g->size : 1 + 4 * g->size;
  const DeviceArray<float> data(*g->device, count, 1.0f);
  const auto sum = g->comm.all_reduce(data.data(), data.data(), DType::f32, count, nullptr);
  expect_failure(*g, [&] { run(sum); }, {"ncclReduceScatter of 4 elements", "number 1 of a group of"});
}

TEST_F(NcclRules, AMessageOfAnotherLength) {
  const auto g = group();
  if (g->rank > 1) return;
  const DeviceArray<std::byte> data(*g->device, 200, std::byte{1});
  const auto message = g->rank == 0 ? g->comm.send(data.data(), 100, 1) : g->comm.recv(data.data(), 200, 0);
  expect_failure(*g, [&] { run(message); },
                 {"rank 1 has ncclRecv of 200 elements of type 1, peer 0",
                  "what comes from rank 0 is of its ncclSend of 100 elements"});
}

/// They are not connected at first, and their hosts wait for each other; then they are, and the device waits.
TEST_F(NcclRules, TwoSendsThatWaitForEachOther) {
  if (session().size() > 2) GTEST_SKIP() << "two ranks show it";
  for (const bool connected : {false, true}) {
    const auto g = group({.patience = 2});
    const int peer = 1 - g->rank;
    const DeviceArray<std::byte> from(*g->device, 100, std::byte{1}), to(*g->device, 100, std::byte{1});
    const auto send = g->comm.send(from.data(), 100, peer), receive = g->comm.recv(to.data(), 100, peer);
    const auto exchange = [&](bool sends_first) {
      (sends_first ? send : receive)->start();
      (sends_first ? receive : send)->start();
      receive->wait();
    };
    if (connected) exchange(g->rank == 0);
    expect_failure(
        *g, [&] { exchange(true); },
        connected ? std::vector<std::string>{"makes no progress",
                                             "rank 0: ncclSend of 100 elements of type 1, peer 1",
                                             "rank 1: ncclSend of 100 elements of type 1, peer 0"}
                  : std::vector<std::string>{"waits for a connection"});
  }
}

TEST_F(NcclRules, ACollectiveThatOneRankDoesNotCallAgain) {
  const auto g = group({.patience = 2});
  const DeviceArray<float> data(*g->device, 8, 1.0f);
  const auto broadcast = g->comm.broadcast(data.data(), 32, 0);
  run(broadcast);
  if (odd()) return;
  expect_failure(*g, [&] { run(broadcast); }, {"makes no progress", "rank 1: in no operation"});
}

TEST_F(NcclRules, RanksThatOrderTwoCommunicatorsDifferently) {
  const auto g = group({.patience = 1, .one_at_a_time = true});
  const DeviceArray<float> a(*g->device, 8, 1.0f), b(*g->device, 8, 1.0f);
  const auto first = g->comm.broadcast(a.data(), 32, 0),
             second = g->mesh.over(Axis::shard, other_queue).broadcast(b.data(), 32, 0);
  run(first);
  run(second);
  const auto both = [&] {
    (odd() ? first : second)->start();
    (odd() ? second : first)->start();
    g->device->finish();
  };
  expect_failure(*g, both, {"makes no progress", "for its turn on the device"});
}

TEST_F(NcclRules, MemoryOfTheHost) {
  const auto g = group();
  std::vector<float> host(8);
  EXPECT_THROW(run(g->comm.broadcast(host.data(), 32, 0)), Error);
  EXPECT_NE(late_nccl::failure().find("no memory of the device"), std::string::npos) << late_nccl::failure();
}

TEST_F(NcclRules, AResultThatIsReadTooEarly) {
  const auto g = group();
  DeviceArray<float> data(*g->device, 8, static_cast<float>(g->rank + 1));
  const auto broadcast = g->comm.broadcast(data.data(), 32, g->size - 1);
  run(*broadcast);  // communicators are complete then
  late_cuda::restart({.seed = 3});
  data.write(std::vector<float>(8, static_cast<float>(g->rank + 1)));
  broadcast->start();
  EXPECT_EQ(data.read()[0], static_cast<float>(g->rank + 1)) << "not there yet";
  broadcast->wait();
  EXPECT_EQ(data.read()[0], static_cast<float>(g->size));
}

/// A communicator of NCCL's own kind, on the device that is current.
class RawCommunicators : public NcclRules {
 protected:
  void SetUp() override {
    NcclRules::SetUp();
    if (IsSkipped()) return;
    late_nccl::configure({});
    late_cuda::restart({.seed = 3, .runs_when_idle = true});
    device_ = make_device(session().local_rank());
    handle_ = std::make_unique<NcclHandle>(session().world(),
                                           NcclMember{session().host(), session().rank(), "all", 60});
  }
  void TearDown() override { handle_.reset(); }
  ncclResult_t broadcast(const DeviceArray<float>& data, Queue queue = 0) {
    return ncclBroadcast(data.data(), data.data(), 8, ncclFloat32, 0, handle_->get(),
                         static_cast<cudaStream_t>(device_->native_stream(queue)));
  }
  void expect_said(const std::string& part) {
    EXPECT_NE(late_nccl::failure().find(part), std::string::npos) << late_nccl::failure();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<NcclHandle> handle_;
};

TEST_F(RawCommunicators, AreBusyUntilAsked) {
  const DeviceArray<float> data(*device_, 8, 1.0f);
  ncclResult_t result = ncclSuccess;
  int busy = 0;
  for (int i = 0; i < 4; ++i) {
    result = broadcast(data);
    ASSERT_TRUE(result == ncclSuccess || result == ncclInProgress);
    if (result == ncclInProgress) {
      ++busy;
      EXPECT_EQ(broadcast(data), ncclInvalidUsage);
      expect_said("still busy with the call before");
    }
    handle_->settle(result, "ncclBroadcast");
  }
  EXPECT_GT(busy, 0);
  device_->finish();
}

TEST_F(RawCommunicators, GiveWorkToTheStreamLate) {
  DeviceArray<float> data(*device_, 8, 0.0f);
  std::byte* const copy = device_->staging().allocate("a copy", 32);
  int late = 0;
  for (int i = 0; i < 4; ++i) {
    data.write(std::vector<float>(8, static_cast<float>(session().rank())));
    const ncclResult_t result = broadcast(data);
    device_->copy_out(0, copy, data.data(), 32);  // too early where the communicator is busy
    handle_->settle(result, "ncclBroadcast");
    device_->finish();
    late += result == ncclInProgress ? 1 : 0;
    float seen = -1;
    std::memcpy(&seen, copy, sizeof seen);
    EXPECT_EQ(seen, result == ncclInProgress ? static_cast<float>(session().rank()) : 0.0f);
    EXPECT_EQ(data.read()[7], 0.0f);
  }
  EXPECT_GT(late, 0);
  device_->staging().release(copy, 32);
}

TEST_F(RawCommunicators, GroupAlikeOnAllRanks) {
  const DeviceArray<float> data(*device_, 8, 1.0f);
  const auto twice = [&] {
    if (odd()) ncclGroupStart();
    for (int i = 0; i < 2; ++i) {
      const ncclResult_t result = broadcast(data);
      if (!odd()) handle_->settle(result, "ncclBroadcast");
    }
    if (odd()) handle_->settle(ncclGroupEnd(), "ncclGroupEnd");
    device_->finish();
  };
  EXPECT_THROW(twice(), Error);
  EXPECT_THROW(handle_->check(), Error);
  expect_said("number 1 of a group of 2");
}

TEST_F(RawCommunicators, StayOnOneStream) {
  const DeviceArray<float> data(*device_, 8, 1.0f);
  handle_->settle(broadcast(data), "ncclBroadcast");
  EXPECT_EQ(broadcast(data, other_queue), ncclInvalidUsage);
  expect_said("another stream");
  device_->finish();
}

TEST_F(RawCommunicators, EndInOrder) {
  const DeviceArray<float> data(*device_, 8, 1.0f);
  EXPECT_EQ(ncclCommDestroy(handle_->get()), ncclInvalidUsage);
  expect_said("not finalized");
  handle_->settle(broadcast(data), "ncclBroadcast");
  device_->finish();
  device_->begin_capture(0);
  handle_->settle(broadcast(data), "ncclBroadcast");
  void* registration = nullptr;
  EXPECT_EQ(ncclCommRegister(handle_->get(), data.data(), 32, &registration), ncclInvalidUsage);
  expect_said("ncclCommRegister while work is captured");
  EXPECT_EQ(ncclCommFinalize(handle_->get()), ncclInvalidUsage);
  expect_said("ncclCommFinalize while work is captured");
  const Graph graph = device_->end_capture(0);
  EXPECT_EQ(ncclCommFinalize(handle_->get()), ncclInvalidUsage);
  expect_said("while a graph has work of the communicator");
  device_->launch(graph, 0);
  device_->finish();
  device_->destroy(graph);
  handle_.reset();
  EXPECT_EQ(late_nccl::communicators(), 0);
}

}  // namespace
}  // namespace ztrain::nccl_rules_test
