#include "runtime/device/device.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "memory/arena.hpp"
#include "runtime/device/choose_gpu.hpp"

namespace ztrain::device_test {

using namespace ztrain::runtime;
using memory::Arena;

namespace {

constexpr int seeds = 40;

/// Submits work that writes its name down, and keeps it alive.
class Script {
 public:
  explicit Script(Device& device) : device_(device) {}
  void work(Queue queue, const std::string& name) {
    works_.emplace_back([this, name] { ran += name; });
    device_.submit(queue, works_.back());
  }
  std::string ran;

 private:
  Device& device_;
  std::deque<std::function<void()>> works_;
};

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::size_t place(const std::string& text, char what) {
  return text.find(what);
}

TEST(HostDevice, RunsWorkWhenItIsSubmitted) {
  const auto device = make_host_device();
  Script script(*device);
  script.work(0, "a");
  EXPECT_EQ(script.ran, "a");
  const Event event = device->make_event();
  device->record(event, 0);
  EXPECT_TRUE(device->done(event));
  int from = 3, to = 0;
  device->copy_in(1, &to, &from, sizeof to);
  EXPECT_EQ(to, 3);
  EXPECT_FALSE(device->asynchronous());
  EXPECT_TRUE(device->memory().host_accessible());
  EXPECT_FALSE(device->seconds(event, event));
}

TEST(DeferredDevice, RunsNothingBeforeTheHostWaits) {
  const auto device = make_deferred_device(1);
  Script script(*device);
  script.work(0, "a");
  script.work(1, "b");
  const Event event = device->make_event();
  device->record(event, 0);
  EXPECT_EQ(script.ran, "");
  device->synchronize(event);
  EXPECT_NE(script.ran.find('a'), std::string::npos);
  device->finish();
  EXPECT_EQ(script.ran.size(), 2u);
}

TEST(DeferredDevice, QueuesAreOrderedByEventsAlone) {
  std::set<std::string> free, ordered;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = make_deferred_device(static_cast<std::uint64_t>(seed));
    const Event event = device->make_event();
    Script unordered(*device), waiting(*device);
    unordered.work(0, "a");
    unordered.work(0, "b");
    unordered.work(1, "c");
    device->finish();
    EXPECT_LT(place(unordered.ran, 'a'), place(unordered.ran, 'b'));
    free.insert(unordered.ran);
    waiting.work(0, "a");
    device->record(event, 0);
    waiting.work(0, "b");
    device->wait(1, event);
    waiting.work(1, "c");
    device->finish();
    EXPECT_LT(place(waiting.ran, 'a'), place(waiting.ran, 'c'));
    ordered.insert(waiting.ran);
  }
  EXPECT_EQ(free, (std::set<std::string>{"abc", "acb", "cab"}));
  EXPECT_EQ(ordered, (std::set<std::string>{"abc", "acb"}));
}

TEST(DeferredDevice, AWaitMeansTheLastRecordBeforeIt) {
  std::set<std::string> orders;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = make_deferred_device(static_cast<std::uint64_t>(seed));
    Script script(*device);
    const Event event = device->make_event();
    device->wait(2, event);  // never recorded: nothing to wait for
    script.work(0, "a");
    device->record(event, 0);
    device->wait(1, event);
    script.work(1, "b");
    script.work(0, "c");
    device->record(event, 0);
    device->finish();
    EXPECT_LT(place(script.ran, 'a'), place(script.ran, 'b'));
    orders.insert(script.ran);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"abc", "acb"}));
}

TEST(DeferredDevice, SynchronizeRunsWhatTheEventNeeds) {
  bool left_over = false;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = make_deferred_device(static_cast<std::uint64_t>(seed));
    Script script(*device);
    const Event a = device->make_event(), b = device->make_event();
    script.work(0, "a");
    device->record(a, 0);
    script.work(2, "x");
    device->wait(1, a);
    script.work(1, "b");
    device->record(b, 1);
    device->synchronize(b);
    EXPECT_LT(place(script.ran, 'a'), place(script.ran, 'b'));
    EXPECT_NE(place(script.ran, 'b'), std::string::npos);
    left_over |= place(script.ran, 'x') == std::string::npos;
    while (!device->done(b)) {
    }
  }
  EXPECT_TRUE(left_over) << "as late as possible";
}

TEST(DeferredDevice, CopiesAreWorkOfTheirQueue) {
  const auto device = make_deferred_device(5);
  const Arena arena("test", 4096, Arena::Guards::on, device->memory());
  int from = 3, to = 0;
  device->copy_in(0, arena.at(0), &from, sizeof from);
  device->copy_out(0, &to, arena.at(0), sizeof to);
  from = 4;  // too early: the copy has not run
  EXPECT_EQ(to, 0);
  device->finish();
  EXPECT_EQ(to, 4);
  arena.check_guards();
}

/// In the order of queues and events, as kernels are, but with the device's memory closed.
TEST(DeferredDevice, TheHostsWorkIsWorkOfItsQueue) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::set<std::string> orders;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = make_deferred_device(static_cast<std::uint64_t>(seed));
    Script script(*device);
    const Event event = device->make_event();
    const std::function<void()> on_host = [&] { script.ran += 'h'; };
    script.work(0, "a");
    device->record(event, 0);
    device->wait(1, event);
    device->run_on_host(1, on_host);
    script.work(1, "b");
    script.work(0, "x");
    device->finish();
    orders.insert(script.ran);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"ahbx", "ahxb", "axhb"}));
  const auto device = make_deferred_device(1);
  const Arena arena("test", 4096, Arena::Guards::off, device->memory());
  const std::function<void()> reads = [&] { *arena.at(0) = std::byte{1}; };
  device->submit(1, reads);
  device->finish();
  EXPECT_DEATH(device->run_on_host(1, reads); device->finish(), "");
}

TEST(DeferredDevice, MemoryIsClosedToTheHost) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto device = make_deferred_device(5);
  Arena arena("test", 1 << 20, Arena::Guards::off, device->memory());
  EXPECT_DEATH(*arena.at(7) = std::byte{1}, "");
  int value = 9, back = 0;
  device->memory().write(arena.at(8), &value, sizeof value);
  device->memory().read(&back, arena.at(8), sizeof back);
  EXPECT_EQ(back, 9);
  Script script(*device);
  script.work(3, "a");
  EXPECT_NE(refusal([&] { device->memory().read(&back, arena.at(8), sizeof back); }).find("while work is"),
            std::string::npos);
  device->finish();
  const std::function<void()> work = [&] { *arena.at(7) = std::byte{1}; };
  device->submit(0, work);
  device->finish();
  std::byte byte{0};
  device->memory().read(&byte, arena.at(7), 1);
  EXPECT_EQ(byte, std::byte{1});
}

TEST(DeferredDevice, AnErrorOfWorkIsThrownWhereTheHostWaits) {
  const auto device = make_deferred_device(5);
  const std::function<void()> work = [] { fail("the kernel failed"); };
  device->submit(4, work);
  EXPECT_EQ(refusal([&] { device->finish(); }), "the kernel failed");
  EXPECT_EQ(refusal([&] { device->finish(); }), "") << "it is reported once";
}

TEST(DeferredDevice, AGraphRunsWhatWasCaptured) {
  std::set<std::string> orders;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = make_deferred_device(static_cast<std::uint64_t>(seed));
    Script script(*device);
    const Event fork = device->make_event(), join = device->make_event();
    device->begin_capture(0);
    script.work(0, "a");
    device->record(fork, 0);
    device->wait(1, fork);
    script.work(1, "b");
    script.work(0, "c");
    device->record(join, 1);
    device->wait(0, join);
    script.work(0, "d");
    const Graph graph = device->end_capture(0);
    device->finish();
    EXPECT_EQ(script.ran, "");
    for (int i = 0; i < 2; ++i) {
      device->launch(graph, 0);
      script.work(0, "|");
      device->finish();
    }
    orders.insert(script.ran.substr(0, 5));
    orders.insert(script.ran.substr(5));
  }
  EXPECT_EQ(orders, (std::set<std::string>{"abcd|", "acbd|"}));
}

TEST(DeferredDevice, CapturesMustBeClosedInThemselves) {
  const auto open_end = refusal([] {
    const auto device = make_deferred_device(1);
    Script script(*device);
    const Event fork = device->make_event();
    device->begin_capture(0);
    device->record(fork, 0);
    device->wait(1, fork);
    script.work(1, "b");
    device->end_capture(0);
  });
  EXPECT_EQ(open_end, "the capture ends while queue 1 is not joined back");
  const auto from_outside = refusal([] {
    const auto device = make_deferred_device(1);
    const Event before = device->make_event();
    device->record(before, 1);
    device->begin_capture(0);
    device->wait(0, before);
  });
  EXPECT_NE(from_outside.find("from outside of the capture"), std::string::npos);
  const auto to_outside = refusal([] {
    const auto device = make_deferred_device(1);
    const Event inside = device->make_event();
    device->begin_capture(0);
    device->record(inside, 0);
    device->end_capture(0);
    device->wait(1, inside);
  });
  EXPECT_NE(to_outside.find("a capture which has ended"), std::string::npos);
  const auto synchronised = refusal([] {
    const auto device = make_deferred_device(1);
    device->begin_capture(0);
    device->finish();
  });
  EXPECT_NE(synchronised.find("while work is captured"), std::string::npos);
}

TEST(ChooseGpu, ByTurns) {
  EXPECT_EQ(choose_gpu(3, 8), 3);
  EXPECT_EQ(choose_gpu(3, 1), 0) << "each rank sees its own alone, or all share it";
  EXPECT_EQ(choose_gpu(5, 4), 1);
}

TEST(ChooseGpu, SaysWhatIsMissing) {
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.rfind("no CUDA device is visible", 0), 0u);
  };
  says(no_gpu_message(NoGpu::driver, "too old", std::nullopt), "driver is missing, or older");
  says(no_gpu_message(NoGpu::driver, "too old", std::nullopt), "cudaGetDeviceCount says: too old");
  says(no_gpu_message(NoGpu::device, "none", std::nullopt), "the batch system gave the job none");
  says(no_gpu_message(NoGpu::device, "none", "-1"), "CUDA_VISIBLE_DEVICES is \"-1\"");
}

TEST(DeferredDevice, TimedEventsTakeTime) {
  const auto device = make_deferred_device(1);
  const Event begin = device->make_event(true), end = device->make_event(true);
  EXPECT_FALSE(device->seconds(begin, end));
  device->record(begin, 0);
  Script script(*device);
  script.work(0, "a");
  device->record(end, 0);
  device->finish();
  EXPECT_GE(device->seconds(begin, end).value(), 0.0);
}

}  // namespace
}  // namespace ztrain::device_test
