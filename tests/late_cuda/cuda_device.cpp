// The product's CUDA device and memories, under a CUDA that runs everything as late as it may.
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "base/error.hpp"
#include "memory/arena.hpp"
#include "memory/huge_buffer.hpp"
#include "runtime/comm/comm_backend.hpp"
#include "tests/late_cuda/late_device.hpp"
#include "tests/late_cuda/memory.hpp"
#include "tests/support/mpi_main.hpp"

namespace ztrain::cuda_device_test {
namespace {

using runtime::Event;
using runtime::Graph;
using test::make_late_device;

constexpr std::uint64_t seeds = 40;

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

/// Work that writes its name down.
std::function<void()> named(std::string& ran, char name) {
  return [&ran, name] { ran += name; };
}

TEST(CudaDevice, KernelsAreLoadedBeforeAnyRuns) {
  EXPECT_EQ(late_cuda::module_loading(), "EAGER") << "CUDA reads it when it is first called";
  EXPECT_EQ(late_cuda::connections(), 32) << "likewise";
}

TEST(CudaDevice, IsTheLocalRanks) {
  std::set<std::string> identities;
  for (int rank = 0; rank < 3; ++rank) {
    const auto device = make_late_device({}, rank);
    EXPECT_EQ(device->name(), "late CUDA on host memory");
    identities.insert(device->identity());
    int current = -1;
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, rank) << "libraries use the current one";
    EXPECT_TRUE(device->asynchronous() && device->captures() && !device->memory().host_accessible());
  }
  EXPECT_EQ(identities.size(), 3u);
}

TEST(CudaDevice, CommunicationGoesBeforeComputing) {
  const auto device = make_late_device({});
  int least = 0, greatest = 0;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  for (runtime::Queue queue = 0; queue < runtime::queue_count; ++queue) {
    int priority = 1;
    auto* const stream = static_cast<cudaStream_t>(device->native_stream(queue));
    ASSERT_EQ(cudaStreamGetPriority(stream, &priority), cudaSuccess);
    EXPECT_EQ(priority, queue == runtime::compute_queue ? least : greatest) << queue;
  }
}

TEST(CudaDevice, GivesBackWhatItMade) {
  const late_cuda::Objects before = late_cuda::objects();
  {
    const auto device = make_late_device({});
    std::string ran;
    for (const bool destroyed : {true, false}) {
      device->begin_capture(0);
      device->submit(0, named(ran, 'a'));
      const Graph graph = device->end_capture(0);
      device->launch(graph, 0);
      device->finish();
      if (destroyed) device->destroy(graph);
    }
    device->make_event();
    EXPECT_NE(late_cuda::objects(), before);
  }
  EXPECT_EQ(late_cuda::objects(), before);
}

TEST(CudaDevice, QueuesAreOrderedByEventsAlone) {
  std::set<std::string> free, ordered;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    for (const bool with_event : {false, true}) {
      const auto device = make_late_device({.seed = seed});
      std::string ran;
      const Event event = device->make_event();
      device->wait(1, event);  // never recorded: nothing to wait for
      device->submit(0, named(ran, 'a'));
      device->record(event, 0);
      device->submit(0, named(ran, 'b'));
      if (with_event) device->wait(1, event);
      device->submit(1, named(ran, 'c'));
      device->finish();
      (with_event ? ordered : free).insert(ran);
    }
  EXPECT_EQ(free, (std::set<std::string>{"abc", "acb", "cab"}));
  EXPECT_EQ(ordered, (std::set<std::string>{"abc", "acb"}));
}

/// An answer of "not yet" is no error of the next launch.
TEST(CudaDevice, AsksWithoutLeavingAnError) {
  const auto device = make_late_device({.seed = 3});
  std::string ran;
  const Event event = device->make_event();
  EXPECT_TRUE(device->done(event)) << "it was never recorded";
  for (const char name : {'a', 'b', 'c', 'd'}) device->submit(0, named(ran, name));
  device->record(event, 0);
  int asked = 0;
  for (; !device->done(event); ++asked) device->submit(1, named(ran, '.'));
  EXPECT_GT(asked, 0);
  EXPECT_EQ(ran.find('a') < ran.find('d'), true);
}

TEST(CudaDevice, ForgetsTheErrorsOfProbes) {
  const auto device = make_late_device({});
  const auto submit = [&] { device->cuda().submit(0, [] {}); };
  ASSERT_NE(cudaSetDevice(99), cudaSuccess);
  EXPECT_NE(refusal(submit), "") << "the launch is blamed for it";
  ASSERT_NE(cudaSetDevice(99), cudaSuccess);
  device->forget_errors();
  EXPECT_EQ(refusal(submit), "");
}

TEST(CudaDevice, CopiesAreWorkOfTheirQueue) {
  const auto device = make_late_device({});
  const memory::Arena on_device("test", 4096, memory::Arena::Guards::on, device->memory());
  const memory::Arena pinned("staging", 4096, memory::Arena::Guards::off, device->staging());
  auto* const value = reinterpret_cast<int*>(pinned.at(0));
  value[0] = 3;
  device->copy_in(0, on_device.at(0), &value[0], sizeof(int));
  device->copy_out(0, &value[1], on_device.at(0), sizeof(int));
  value[0] = 4;  // too early: the copy has not run
  EXPECT_EQ(value[1], 0);
  device->finish();
  EXPECT_EQ(value[1], 4);
  on_device.check_guards();
}

/// What the host has waited for is there to read, by either way to wait.
TEST(CudaDevice, TheHostReadsWhatItWaitedFor) {
  for (const bool asks : {false, true}) {
    const auto device = make_late_device({});
    const memory::Arena on_device("test", 64, memory::Arena::Guards::off, device->memory());
    const memory::Arena pinned("staging", 64, memory::Arena::Guards::off, device->staging());
    auto* const value = reinterpret_cast<int*>(pinned.at(0));
    const Event event = device->make_event();
    device->synchronize(event);  // never recorded: nothing to wait for
    const int three = 3;
    device->memory().write(on_device.at(0), &three, sizeof three);
    device->copy_out(1, value, on_device.at(0), sizeof(int));
    device->record(event, 1);
    EXPECT_EQ(*value, 0) << "too early";
    if (!asks) device->synchronize(event);
    while (asks && !device->done(event)) {
    }
    EXPECT_EQ(*value, 3) << asks;
  }
}

/// Queues do not wait for fills and writes by themselves.
TEST(CudaDevice, MemoryIsInPlaceWhenAWriteReturns) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto device = make_late_device({.seed = seed});
    std::byte* const data = device->memory().allocate("test", 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 4096, 0u);
    const int three = 3;
    int zero = 1, at_work = 0;
    device->memory().read(&zero, data + 60, sizeof zero);
    EXPECT_EQ(zero, 0);
    device->memory().write(data, &three, sizeof three);
    device->submit(2, [&] { std::memcpy(&at_work, data, sizeof at_work); });
    device->finish();
    ASSERT_EQ(at_work, 3) << seed;
    device->memory().fill(data, 0, 64);
    device->submit(2, [&] { std::memcpy(&at_work, data, sizeof at_work); });
    device->finish();
    ASSERT_EQ(at_work, 0) << seed;
    device->memory().release(data, 64);
  }
}

TEST(CudaDevice, SaysWhatIsMissingWhenMemoryIsOut) {
  const auto device = make_late_device({});
  const auto before = device->memory().limits();
  const std::string text = refusal([&] { device->memory().allocate("transient arena", before.total + 1); });
  EXPECT_EQ(
      text.rfind("out of GPU memory: the transient arena needs 4.00 GiB, and late CUDA on host memory has ",
                 0),
      0u)
      << text;
  std::byte* const data = device->memory().allocate("test", 1 << 20);
  EXPECT_LE(device->memory().limits().available, before.available - (1 << 20));
  device->memory().release(data, 1 << 20);
  EXPECT_EQ(device->memory().limits().available, before.available);
}

TEST(CudaDevice, LargePinnedMemoryIsOfHugePagesAndRegistered) {
  constexpr std::int64_t bytes = 40 * memory::huge_page + 100;
  for (const bool registers : {true, false}) {
    const auto device = make_late_device({.registers = registers});
    std::int64_t told = 0, of = 0;
    device->staging().report_progress_to([&](std::int64_t done, std::int64_t all) {
      EXPECT_GT(done, told);
      told = done, of = all;
    });
    std::byte* const data = device->staging().allocate("host arena", bytes);
    EXPECT_TRUE(late_cuda::pinned_memory().contains(data, bytes));
    EXPECT_TRUE(data[0] == std::byte{0} && std::memcmp(data, data + 1, bytes - 1) == 0) << "all zero";
    EXPECT_EQ(told, registers ? memory::HugeBuffer::taken(bytes) : 0)
        << "CUDA's own allocation tells nothing";
    EXPECT_EQ(of, told);
    if (registers) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % memory::huge_page, 0u);
      int mode = -1;
      ASSERT_EQ(syscall(SYS_get_mempolicy, &mode, nullptr, 0ul, data, MPOL_F_ADDR), 0);
      EXPECT_EQ(mode, MPOL_PREFERRED) << "pages are to be of the GPU's node";
    }
    device->staging().release(data, bytes);
    EXPECT_FALSE(late_cuda::pinned_memory().contains(data, 1));
  }
}

TEST(CudaDevice, AGraphRunsWhatWasCaptured) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto device = make_late_device({.seed = seed});
    std::string ran;
    const Event fork = device->make_event(), join = device->make_event(true),
                after = device->make_event(true);
    device->begin_capture(0);
    device->submit(0, named(ran, 'a'));
    device->record(fork, 0);
    device->wait(1, fork);
    device->submit(1, named(ran, 'b'));
    device->submit(0, named(ran, 'c'));
    device->record(join, 1);
    device->wait(0, join);
    const Graph graph = device->end_capture(0);
    device->finish();
    EXPECT_EQ(ran, "");
    for (int i = 0; i < 2; ++i) device->launch(graph, 0);
    device->record(after, 0);
    device->finish();
    EXPECT_FALSE(device->seconds(join, after)) << "one was recorded in a capture";
    EXPECT_EQ(device->seconds(after, after), 0.0);
    orders.insert(ran.substr(0, 3));
    orders.insert(ran.substr(3));
    device->destroy(graph);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"abc", "acb"}));
}

TEST(CudaDevice, AQueueIsInTheCaptureThatItJoinedAlone) {
  const auto device = make_late_device({});
  std::string ran;
  const Event fork = device->make_event(), join = device->make_event(), begin = device->make_event(true),
              end = device->make_event(true);
  for (const bool joins : {true, false}) {
    device->begin_capture(0);
    device->submit(0, named(ran, 'a'));
    if (joins) {
      device->record(fork, 0);
      device->wait(1, fork);
      device->record(join, 1);
      device->wait(0, join);
    } else {
      device->record(begin, 1);
      device->record(end, 1);
    }
    device->end_capture(0);
  }
  device->finish();
  EXPECT_TRUE(device->seconds(begin, end)) << "recorded while another queue was captured";
}

TEST(CudaDevice, LaunchesThatFailThrow) {
  const auto device = make_late_device({});
  const auto fails = [] { EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice); };
  EXPECT_NE(refusal([&] { device->cuda().submit(0, fails); }).find("cudaErrorInvalidDevice"),
            std::string::npos);
  EXPECT_EQ(refusal([&] { device->cuda().submit(0, [] {}); }), "") << "it was reported once";
  device->begin_capture(0);
  const Graph graph = device->end_capture(0);
  device->destroy(graph);
  EXPECT_NE(refusal([&] { device->launch(graph, 0); }).find("cudaGraphLaunch"), std::string::npos);
}

TEST(CudaDevice, ErrorsOfCapturesAreErrors) {
  const auto device = make_late_device({});
  std::string ran;
  const Event fork = device->make_event();
  device->begin_capture(0);
  device->submit(0, named(ran, 'a'));
  device->record(fork, 0);
  device->wait(1, fork);
  device->submit(1, named(ran, 'b'));
  EXPECT_NE(refusal([&] { device->end_capture(0); }).find("cudaErrorStreamCaptureUnjoined"),
            std::string::npos);
  device->begin_capture(0);
  EXPECT_NE(refusal([&] { device->memory().allocate("test", 64); }).find("cudaErrorStreamCaptureUnsupported"),
            std::string::npos);
  EXPECT_NE(refusal([&] { device->end_capture(0); }).find("cudaErrorStreamCaptureInvalidated"),
            std::string::npos);
  device->submit(0, named(ran, 'c'));
  device->finish();
  EXPECT_EQ(ran, "c") << "the device goes on";
}

TEST(CudaDevice, AnErrorOfAKernelIsThrownWhereTheHostWaits) {
  const auto device = make_late_device({});
  device->submit(4, [] { fail("the kernel failed"); });
  EXPECT_NE(refusal([&] { device->finish(); }).find("cudaErrorLaunchFailure"), std::string::npos);
  late_cuda::restart({});
}

}  // namespace
}  // namespace ztrain::cuda_device_test
