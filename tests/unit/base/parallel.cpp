// Work on several threads, also where none can be made.

#include "base/parallel.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/host_threads.hpp"

namespace ztrain::parallel_test {
namespace {

/// Threads that begin while it lives want a stack beyond any address space.
class NoFurtherThread {
 public:
  NoFurtherThread() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoFurtherThread() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoFurtherThread(const NoFurtherThread&) = delete;
  NoFurtherThread& operator=(const NoFurtherThread&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(Parallel, OneThreadDoesAllWhereNoFurtherCanBeMade) {
  const NoFurtherThread none;
  int sum = 0;
  in_parallel(100, [&](int i) { sum += i; });
  EXPECT_EQ(sum, 4950);
}

/// A launcher may have given this process fewer cores than the machine has.
TEST(Parallel, NoMoreThreadsThanCoresThatThisProcessMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<int> elsewhere = 0;
  const std::thread::id self = std::this_thread::get_id();
  in_parallel(100, [&](int) {
    if (std::this_thread::get_id() != self) ++elsewhere;
    std::this_thread::yield();
  });
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(elsewhere, 0);
}

TEST(Parallel, SignalsAreAsTheyWereWhereNoThreadCanBeMade) {
  const NoFurtherThread none;
  EXPECT_THROW(thread_without_signals([] {}), std::system_error);
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGTERM), 0);
}

TEST(Parallel, EachPartIsDoneOnceByThreadsOfTheirOwnLanes) {
  constexpr int lanes = 3;
  std::vector<std::atomic<int>> times(200);
  std::vector<std::thread::id> of_lane(lanes);
  in_lanes(std::ssize(times), lanes, [&](std::int64_t i, int lane) {
    ++times[static_cast<std::size_t>(i)];
    auto& thread = of_lane[static_cast<std::size_t>(lane)];
    if (thread == std::thread::id()) thread = std::this_thread::get_id();
    EXPECT_EQ(thread, std::this_thread::get_id()) << "lane " << lane;
    if (lane == 0) std::this_thread::yield();
  });
  for (const auto& n : times) EXPECT_EQ(n, 1);
  EXPECT_TRUE(of_lane[0] == std::thread::id() || of_lane[0] == std::this_thread::get_id());
}

TEST(Parallel, TheFirstPartThatFailsIsToldAndNoneIsBegunBehindIt) {
  std::atomic<int> begun = 0;
  std::barrier both(2);  // both fail, the later part first
  try {
    in_lanes(100, 2, [&](std::int64_t i, int) {
      ++begun;
      if (i > 1) return;
      both.arrive_and_wait();
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      fail("part {}", i);
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "part 0");
  }
  EXPECT_EQ(begun, 2);
}

TEST(HostThreads, ShareEachPartOnceTimeAndAgain) {
  HostThreads threads(3);
  EXPECT_EQ(threads.count(), 3);
  std::vector<std::atomic<int>> done(1000);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t parts = round % 5 == 0 ? 1 : round % 7 == 0 ? 0 : 1000 - round;
    threads.share(parts, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
    for (std::int64_t i = 0; i < 1000; ++i)
      ASSERT_EQ(done[static_cast<std::size_t>(i)].exchange(0), i < parts ? 1 : 0) << round;
  }
}

TEST(HostThreads, AreSeveralAtOnceAndTakeNoSignals) {
  HostThreads threads(2);
  std::atomic<int> there = 0;
  std::atomic<bool> blocked = true;
  const std::thread::id caller = std::this_thread::get_id();
  threads.share(2, [&](std::int64_t) {
    for (++there; there < 2;) std::this_thread::yield();  // each waits for the other
    if (std::this_thread::get_id() == caller) return;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    blocked = sigismember(&now, SIGTERM) == 1;
  });
  EXPECT_TRUE(blocked);
}

TEST(HostThreads, ArePassedOnlyWhenAllHaveEnded) {
  HostThreads threads(2);
  std::atomic<int> there = 0, ended = 0;
  const std::thread::id caller = std::this_thread::get_id();
  threads.share(2, [&](std::int64_t) {
    for (++there; there < 2;) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++ended;
  });
  EXPECT_EQ(ended, 2);
}

/// Two parts wait for each other, so that the caller and the helper have one each.
TEST(HostThreads, PassOnWhatIsThrownOnceAllHaveLeftTheWork) {
  HostThreads threads(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (const bool on_caller : {true, false, true}) {
    std::atomic<int> there = 0, left = 0;
    try {
      threads.share(2, [&](std::int64_t) {
        for (++there; there < 2;) std::this_thread::yield();
        if ((std::this_thread::get_id() == caller) == on_caller) fail("on caller: {}", on_caller);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ++left;
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(left, 1) << "the other thread is still at work";
      EXPECT_STREQ(e.what(), on_caller ? "on caller: true" : "on caller: false");
    }
    std::atomic<int> done = 0;
    threads.share(100, [&](std::int64_t) { ++done; });
    EXPECT_EQ(done, 100);
  }
}

TEST(HostThreads, ThrowTheFirstOfSeveralExceptions) {
  HostThreads threads(2);
  std::atomic<int> there = 0;
  try {
    threads.share(2, [&](std::int64_t i) {
      for (++there; there < 2;) std::this_thread::yield();
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      fail("part {}", i);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "part 1");
  }
}

TEST(HostThreads, OneDoesAllWhereNoFurtherCanBeMade) {
  const NoFurtherThread none;
  HostThreads threads(4);
  EXPECT_EQ(threads.count(), 1);
  int sum = 0;
  threads.share(100, [&](std::int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 4950);
}

TEST(Node, HasTheNameThatSlurmGivesIt) {
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  unsetenv("SLURMD_NODENAME");
  EXPECT_EQ(node_name(), host);
  setenv("SLURMD_NODENAME", "", 1);
  EXPECT_EQ(node_name(), host);
  setenv("SLURMD_NODENAME", "gpu07", 1);
  EXPECT_EQ(node_name(), "gpu07");
  unsetenv("SLURMD_NODENAME");
}

}  // namespace
}  // namespace ztrain::parallel_test
