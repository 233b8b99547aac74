// Limits on a process, and signals to it, in processes of their own.
#include "runtime/session/limits.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "base/reason.hpp"
#include "runtime/session/stop_signal.hpp"

namespace ztrain::runtime::process_test {
namespace {

template <class Resource>
void set(Resource resource, rlim_t soft, rlim_t hard) {
  const rlimit both{soft, hard};
  if (::setrlimit(resource, &both) != 0) std::perror("setrlimit");
}

template <class Resource>
rlim_t soft(Resource resource) {
  rlimit now{};
  ::getrlimit(resource, &now);
  return now.rlim_cur;
}

/// At the end of a run one would end it with a status that says that it failed.
TEST(StopSignals, ThatComeLateAreIgnored) {
  const auto late = [] {
    {
      StopSignal stop;
      std::raise(SIGUSR1);
      if (!stop.arrived()) std::exit(2);
      std::raise(SIGUSR1);
    }
    std::raise(SIGUSR1);
    std::exit(0);
  };
  EXPECT_EXIT(late(), testing::ExitedWithCode(0), "");
}

TEST(Limits, ThatMayBeRaisedAre) {
  const auto raise = [] {
    set(RLIMIT_NOFILE, 12, 300);
    set(RLIMIT_STACK, 1 << 16, RLIM_INFINITY);
    const std::string fault = raise_limits();
    std::fprintf(stderr, "[%s] %zu %zu", fault.c_str(), soft(RLIMIT_NOFILE), soft(RLIMIT_STACK));
    std::exit(0);
  };
  EXPECT_EXIT(raise(), testing::ExitedWithCode(0), "^\\[\\] 300 8388608$");
  const auto leave = [] {
    set(RLIMIT_STACK, 1 << 25, RLIM_INFINITY);
    raise_limits();
    std::fprintf(stderr, "%zu", soft(RLIMIT_STACK));
    std::exit(0);
  };
  EXPECT_EXIT(leave(), testing::ExitedWithCode(0), "^33554432$");
}

TEST(Limits, OfThreadsAreTheUsual) {
  const auto stack = [] {
    pthread_attr_t small, used;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    pthread_setattr_default_np(&small);
    raise_limits();
    std::size_t bytes = 0;
    pthread_getattr_default_np(&used);
    pthread_attr_getstacksize(&used, &bytes);
    std::fprintf(stderr, "%zu", bytes);
    std::exit(0);
  };
  EXPECT_EXIT(stack(), testing::ExitedWithCode(0), "^8388608$");
}

TEST(Limits, ThatAreTooLowAreToldOf) {
  const auto tell = [](auto resource, rlim_t limit) {
    set(resource, limit, limit);
    const std::string fault = raise_limits();
    std::fprintf(stderr, "%s", fault.c_str());
    std::exit(fault.empty() ? 0 : 1);
  };
  const auto refused = testing::ExitedWithCode(1);
  EXPECT_EXIT(tell(RLIMIT_NOFILE, 24), refused,
              "^this process may have 24 open files, .*`ulimit -n 32` or more");
  EXPECT_EXIT(tell(RLIMIT_STACK, 1 << 16), refused,
              "^this process may have 65536 bytes of stack, .*`ulimit -s 512`");
  EXPECT_EXIT(tell(RLIMIT_AS, 100 << 20), refused, "104857600 bytes of address space, .*`ulimit -v 524288`");
}

TEST(Limits, OnMemoryAreNamedWhereItIsLacking) {
  EXPECT_EQ(reason_of(std::bad_alloc()), "it takes more memory than there is");
  const auto lacking = [] {
    set(RLIMIT_AS, std::size_t{1} << 40, RLIM_INFINITY);
    std::fprintf(stderr, "%s", reason_of(std::bad_alloc()).c_str());
    std::exit(0);
  };
  EXPECT_EXIT(
      lacking(), testing::ExitedWithCode(0),
      "^it takes more memory than there is; this process may have 1099511627776 bytes .*\\(ulimit -v\\)$");
}

}  // namespace
}  // namespace ztrain::runtime::process_test
