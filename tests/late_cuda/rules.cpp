// What CUDA promises, and what it does not, as the late runtime has it: the other tests rest on this.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/late_cuda/late_cuda.hpp"

namespace ztrain::rules_test {
namespace {

constexpr std::uint64_t seeds = 40;
constexpr std::size_t one = sizeof(int);

void ok(cudaError_t code) {
  ASSERT_EQ(code, cudaSuccess) << cudaGetErrorName(code);
}

/// Two streams, two events, and an int in each kind of memory.
struct Scene {
  explicit Scene(std::uint64_t seed = 1, bool runs_when_idle = false) {
    late_cuda::restart({seed, runs_when_idle});
    for (cudaStream_t& stream : streams) ok(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    for (cudaEvent_t& event : events) ok(cudaEventCreateWithFlags(&event, cudaEventDefault));
    ok(cudaMalloc(reinterpret_cast<void**>(&on_device), one));
    ok(cudaMallocHost(reinterpret_cast<void**>(&pinned), one));
  }
  ~Scene() {
    late_cuda::restart({});
    cudaFree(on_device);
    cudaFreeHost(pinned);
    for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : events) cudaEventDestroy(event);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  /// An operation that writes its name down.
  void work(int stream, char name) {
    late_cuda::enqueue(
        streams[stream],
        [this, name] {
          ran += name;
          return true;
        },
        "a name");
  }
  void record(int event, int stream) { ok(cudaEventRecord(events[event], streams[stream])); }
  cudaError_t wait(int stream, int event) { return cudaStreamWaitEvent(streams[stream], events[event], 0); }
  void begin_capture(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ok(cudaStreamBeginCapture(streams[0], mode));
  }
  cudaError_t end_capture(int stream = 0) {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(streams[stream], &graph);
    EXPECT_EQ(graph == nullptr, code != cudaSuccess);
    return code;
  }
  /// Of the int on the device, once all is done.
  int value() {
    ok(cudaDeviceSynchronize());
    int read = 0;
    ok(cudaMemcpy(&read, on_device, one, cudaMemcpyDeviceToHost));
    return read;
  }

  cudaStream_t streams[2];
  cudaEvent_t events[2];
  int *on_device = nullptr, *pinned = nullptr;
  std::string ran;
};

/// By its version a library names whose function it asks for.
TEST(LateCudaNames, AreNotThoseThatOtherLibrariesAskFor) {
  EXPECT_EQ(dlvsym(RTLD_DEFAULT, "cudaMalloc", "libcudart.so.13"), nullptr);
  EXPECT_EQ(dlvsym(RTLD_DEFAULT, "cudaMalloc", "LATE"),
            reinterpret_cast<void*>(static_cast<cudaError_t (*)(void**, std::size_t)>(cudaMalloc)));
}

TEST(LateCudaOrder, NothingRunsBeforeSomebodyWaits) {
  Scene s;
  s.work(0, 'a');
  s.record(0, 0);
  EXPECT_EQ(s.ran, "");
  ok(cudaEventSynchronize(s.events[0]));
  EXPECT_EQ(s.ran, "a");
  s.work(1, 'b');
  s.record(1, 1);
  while (cudaEventQuery(s.events[1]) == cudaErrorNotReady) EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(s.ran, "ab");
}

TEST(LateCudaOrder, StreamsAreOrderedByEventsAlone) {
  std::set<std::string> free, ordered;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    for (const bool with_event : {false, true}) {
      Scene s(seed);
      s.work(0, 'a');
      s.record(0, 0);
      s.work(0, 'b');
      if (with_event) ok(s.wait(1, 0));
      s.work(1, 'c');
      ok(cudaDeviceSynchronize());
      (with_event ? ordered : free).insert(s.ran);
    }
  EXPECT_EQ(free, (std::set<std::string>{"abc", "acb", "cab"}));
  EXPECT_EQ(ordered, (std::set<std::string>{"abc", "acb"}));
}

TEST(LateCudaOrder, WaitingForAStreamLeavesOthersAlone) {
  bool left = false;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Scene s(seed);
    s.work(0, 'a');
    s.work(1, 'b');
    ok(cudaStreamSynchronize(s.streams[1]));
    left |= s.ran == "b";
  }
  EXPECT_TRUE(left);
}

TEST(LateCudaOrder, RunsByItselfWhereThatIsAskedFor) {
  Scene s(1, true);
  std::atomic<bool> ran = false;
  late_cuda::enqueue(
      s.streams[0], [&] { return ran = true; }, "a flag");
  while (!ran) std::this_thread::yield();
}

TEST(LateCudaOrder, OperationsArePolled) {
  Scene s;
  int left = 5;
  late_cuda::enqueue(
      s.streams[0], [&] { return --left == 0; }, "a countdown");
  s.work(0, 'a');
  ok(cudaStreamSynchronize(s.streams[0]));
  EXPECT_EQ(left, 0);
  EXPECT_EQ(s.ran, "a");
}

TEST(LateCudaOrder, AFailureStays) {
  Scene s;
  late_cuda::enqueue(
      s.streams[0], []() -> bool { throw std::runtime_error("the kernel failed"); }, "a kernel");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "it is not known yet";
  EXPECT_EQ(cudaStreamSynchronize(s.streams[0]), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(s.streams[1]), cudaErrorLaunchFailure);
}

TEST(LateCudaMemory, IsClosedToTheHost) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Scene s;
  EXPECT_DEATH(*s.on_device = 1, "");
  const late_cuda::Open open;
  *s.on_device = 1;
}

/// It is work of its stream, to which the device's memory is closed and CUDA says no.
TEST(LateCudaOrder, AFunctionOfTheHostIsWorkOfItsStream) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Scene s(seed);
    const auto write = [](void* scene) { static_cast<Scene*>(scene)->ran += 'h'; };
    s.work(0, 'a');
    ok(cudaLaunchHostFunc(s.streams[0], write, &s));
    s.work(0, 'b');
    s.work(1, 'x');
    ok(cudaDeviceSynchronize());
    orders.insert(s.ran);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"ahbx", "ahxb", "axhb", "xahb"}));
  Scene s;
  std::pair<Scene*, cudaError_t> asked{&s, cudaSuccess};
  const auto ask = [](void* given) {
    auto& [scene, code] = *static_cast<std::pair<Scene*, cudaError_t>*>(given);
    code = cudaEventQuery(scene->events[0]);
  };
  ok(cudaLaunchHostFunc(s.streams[0], ask, &asked));
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(asked.second, cudaErrorNotPermitted);
  const auto touch = [](void* scene) { *static_cast<Scene*>(scene)->on_device = 1; };
  EXPECT_DEATH(cudaLaunchHostFunc(s.streams[0], touch, &s); cudaDeviceSynchronize(), "");
}

TEST(LateCudaMemory, PinnedMemoryIsReadAndWrittenWhenTheCopyRuns) {
  Scene s;
  *s.pinned = 3;
  ok(cudaMemcpyAsync(s.on_device, s.pinned, one, cudaMemcpyHostToDevice, s.streams[0]));
  *s.pinned = 4;
  EXPECT_EQ(s.value(), 4) << "changed too soon";
  *s.pinned = 5;
  ok(cudaMemcpyAsync(s.pinned, s.on_device, one, cudaMemcpyDeviceToHost, s.streams[0]));
  EXPECT_EQ(*s.pinned, 5) << "read too soon";
  ok(cudaStreamSynchronize(s.streams[0]));
  EXPECT_EQ(*s.pinned, 4);
}

TEST(LateCudaMemory, PageableMemoryIsReadAndWrittenBeforeTheCallReturns) {
  Scene s;
  int host = 3;
  ok(cudaMemcpyAsync(s.on_device, &host, one, cudaMemcpyHostToDevice, s.streams[0]));
  host = 4;
  EXPECT_EQ(s.value(), 3);
  ok(cudaMemcpyAsync(&host, s.on_device, one, cudaMemcpyDeviceToHost, s.streams[0]));
  EXPECT_EQ(host, 3);
}

/// What CudaMemory waits for the device for.
TEST(LateCudaMemory, FillsAndCopiesFromTheHostAreLateAndUnordered) {
  int early = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Scene s(seed);
    const int three = 3;
    ok(cudaMemset(s.on_device, 0, one));
    EXPECT_EQ(s.value(), 0);
    ok(cudaMemcpy(s.on_device, &three, one, cudaMemcpyHostToDevice));
    ok(cudaMemcpyAsync(s.pinned, s.on_device, one, cudaMemcpyDeviceToHost, s.streams[0]));
    ok(cudaStreamSynchronize(s.streams[0]));
    early += *s.pinned == 0 ? 1 : 0;
  }
  EXPECT_GT(early, 0) << "a stream that does not block waits for the legacy stream";
}

TEST(LateCudaMemory, AddressesAreOfTheNamedKindsAndWithinOneAllocation) {
  Scene s;
  EXPECT_EQ(cudaMemcpyAsync(s.on_device, s.pinned, one, cudaMemcpyDeviceToHost, s.streams[0]),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(s.on_device, s.pinned, 2 * one, cudaMemcpyHostToDevice, s.streams[0]),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(s.on_device, 0, 2 * one), cudaErrorInvalidValue);
  EXPECT_TRUE(late_cuda::is_device_memory(s.on_device, one));
  EXPECT_FALSE(late_cuda::is_device_memory(s.pinned, one));
  EXPECT_EQ(cudaFree(s.pinned), cudaErrorInvalidValue);
}

TEST(LateCudaCapture, AGraphRunsAtEachLaunch) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Scene s(seed);
    s.begin_capture();
    s.work(0, 'a');
    s.record(0, 0);
    ok(s.wait(1, 0));
    EXPECT_TRUE(late_cuda::capturing(s.streams[1]));
    s.work(1, 'b');
    s.work(0, 'c');
    s.record(1, 1);
    ok(s.wait(0, 1));
    s.work(0, 'd');
    cudaGraph_t graph = nullptr;
    ok(cudaStreamEndCapture(s.streams[0], &graph));
    EXPECT_FALSE(late_cuda::capturing(s.streams[1]));
    cudaGraphExec_t executable = nullptr;
    ok(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    ok(cudaGraphDestroy(graph));
    ok(cudaDeviceSynchronize());
    EXPECT_EQ(s.ran, "");
    for (int i = 0; i < 2; ++i) {
      ok(cudaGraphLaunch(executable, s.streams[i]));
      s.work(i, '|');
    }
    ok(cudaDeviceSynchronize());
    std::erase(s.ran, '|');
    ASSERT_EQ(s.ran.size(), 8u);
    orders.insert(s.ran.substr(0, 4));
    orders.insert(s.ran.substr(4));
    ok(cudaGraphExecDestroy(executable));
  }
  EXPECT_EQ(orders, (std::set<std::string>{"abcd", "acbd"}));
}

/// Each ends the capture, too.
TEST(LateCudaCapture, WhatMayWaitAllocateOrAskIsRefused) {
  const std::vector<std::pair<const char*, std::function<cudaError_t(Scene&)>>> calls{
      {"malloc", [](Scene& s) { return cudaMalloc(reinterpret_cast<void**>(&s.on_device), one); }},
      {"free", [](Scene& s) { return cudaFree(s.on_device); }},
      {"pinned", [](Scene& s) { return cudaMallocHost(reinterpret_cast<void**>(&s.pinned), one); }},
      {"copy", [](Scene& s) { return cudaMemcpy(s.on_device, s.pinned, one, cudaMemcpyHostToDevice); }},
      {"fill", [](Scene& s) { return cudaMemset(s.on_device, 0, one); }},
      {"query", [](Scene& s) { return cudaEventQuery(s.events[0]); }},
      {"event", [](Scene& s) { return cudaEventSynchronize(s.events[0]); }},
      {"stream", [](Scene& s) { return cudaStreamSynchronize(s.streams[0]); }},
      {"other stream", [](Scene& s) { return cudaStreamSynchronize(s.streams[1]); }},
      {"device", [](Scene&) { return cudaDeviceSynchronize(); }}};
  for (const auto& [name, call] : calls) {
    Scene s;
    s.record(0, 1);
    s.begin_capture();
    s.work(0, 'a');
    EXPECT_EQ(call(s), cudaErrorStreamCaptureUnsupported) << name;
    EXPECT_EQ(s.end_capture(), cudaErrorStreamCaptureInvalidated) << name;
  }
  Scene s;
  s.begin_capture(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamSynchronize(s.streams[1]), cudaSuccess);
  EXPECT_EQ(s.end_capture(), cudaSuccess);
}

TEST(LateCudaCapture, StreamsMustBeJoined) {
  for (const bool join : {false, true}) {
    Scene s;
    s.begin_capture();
    s.work(0, 'a');
    s.record(0, 0);
    ok(s.wait(1, 0));
    s.work(1, 'b');
    if (join) {
      s.record(1, 1);
      ok(s.wait(0, 1));
    }
    EXPECT_EQ(s.end_capture(), join ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
  }
}

TEST(LateCudaCapture, EventsDoNotLeadInOrOut) {
  {
    Scene s;
    s.record(0, 1);
    s.begin_capture();
    EXPECT_EQ(s.wait(0, 0), cudaErrorStreamCaptureIsolation);
    EXPECT_EQ(s.end_capture(), cudaErrorStreamCaptureInvalidated);
  }
  Scene s;
  s.begin_capture();
  s.work(0, 'a');
  s.record(0, 0);
  ok(s.end_capture());
  EXPECT_EQ(s.wait(1, 0), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventQuery(s.events[0]), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(s.events[0]), cudaErrorCapturedEvent);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, s.events[0], s.events[0]), cudaErrorInvalidResourceHandle);
}

TEST(LateCudaCapture, EndsWhereItBegan) {
  Scene s;
  EXPECT_EQ(s.end_capture(), cudaErrorIllegalState);
  s.begin_capture();
  EXPECT_EQ(cudaStreamBeginCapture(s.streams[0], cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  s.work(0, 'a');
  s.record(0, 0);
  ok(s.wait(1, 0));
  EXPECT_EQ(s.end_capture(1), cudaErrorStreamCaptureUnmatched);
  s.begin_capture();
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = s.end_capture(); }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureWrongThread);
}

}  // namespace
}  // namespace ztrain::rules_test
