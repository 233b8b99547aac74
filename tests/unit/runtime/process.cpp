// Limits on a process, and signals to it, in processes of their own.
#include "runtime/session/limits.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "runtime/session/launcher.hpp"
#include "runtime/session/signals.hpp"

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

/// Waits until the thread that takes signals has taken these.
void expect_arrival(Signals& signals, unsigned bits) {
  for (unsigned found = 0; (found & bits) != bits; std::this_thread::yield()) found |= signals.arrived();
}

/// What a process comes to that begins as a program does which nobody told to ignore a signal.
template <class Work>
void alone(Work work) {
  for (const Signals::Kind& kind : Signals::kinds) std::signal(kind.number, SIG_DFL);
  work();
  std::exit(0);
}

/// Checks a task that a launcher has started and that MPI says is alone.
void require_alone(const char* rank, const char* tasks) {
  const Launcher srun{"srun", {}, WireUp::none, {}, "start them with `srun --mpi=pmix`"};
  try {
    require_one_job(Started{&srun, rank, tasks, "0", fmt::format("SLURM_PROCID={}", rank)});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s", error.what());
    std::exit(2);
  }
  std::exit(0);
}

TEST(TasksOfALauncher, AreOneJobOrRefused) {
  EXPECT_EXIT(require_alone("0", "4"), testing::ExitedWithCode(2),
              "^srun has started 4 tasks \\(SLURM_PROCID=0\\), .* linked with [^ ]+ .*`srun --mpi=pmix`$");
  EXPECT_EXIT(require_alone("3", ""), testing::ExitedWithCode(1), "^$") << "one of them says it";
  EXPECT_EXIT(require_alone("0", "1"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(require_alone("0", ""), testing::ExitedWithCode(0), "") << "tasks may be mpirun's daemons";
  require_one_job(std::nullopt);
}

/// At the end of a run one would end it with a status that says that it failed.
TEST(SignalsOfAProcess, ThatComeLateAreIgnored) {
  const auto late = [] {
    {
      Signals signals;
      ::kill(::getpid(), SIGUSR1);
      expect_arrival(signals, 1 << 2);
      ::kill(::getpid(), SIGUSR1);
    }
    std::raise(SIGUSR1);
    std::raise(SIGUSR2);
  };
  EXPECT_EXIT(alone(late), testing::ExitedWithCode(0), "");
}

TEST(SignalsOfAProcess, EndItUnlessTheyAreCaught) {
  for (const int number : {SIGTERM, SIGINT}) {
    const auto end = [&] {
      Signals signals;
      {
        const Signals::Caught caught(signals, [](const auto&) {});
      }
      ::kill(::getpid(), number);
      ::pause();
    };
    EXPECT_EXIT(alone(end), testing::KilledBySignal(number), "");
  }
}

TEST(SignalsOfAProcess, EndItWhenSigintComesAgain) {
  const auto again = [] {
    Signals signals;
    const Signals::Caught caught(signals, [](const Signals::Kind& kind) {
      std::fprintf(stderr, "%s ", std::string(kind.name).c_str());
    });
    ::kill(::getpid(), SIGTERM);
    expect_arrival(signals, 1 << 0);
    ::kill(::getpid(), SIGINT);
    expect_arrival(signals, 1 << 1);
    ::kill(::getpid(), SIGINT);
    ::pause();
  };
  EXPECT_EXIT(alone(again), testing::KilledBySignal(SIGINT), "^SIGTERM SIGINT $");
}

/// The others are of a run that ends, whoever asks and how often; a save is asked for once.
TEST(SignalsOfAProcess, OfASaveAreToldOnce) {
  const auto save = [] {
    Signals signals;
    ::kill(::getpid(), SIGUSR1);
    ::kill(::getpid(), SIGUSR2);
    expect_arrival(signals, Signals::save | 1 << 2);
    std::exit(signals.arrived() == 1 << 2 ? 0 : 2);
  };
  EXPECT_EXIT(alone(save), testing::ExitedWithCode(0), "");
}

/// A script's background job is not to hear of the Ctrl-C that is meant for the script.
TEST(SignalsOfAProcess, ThatAreIgnoredStayIgnored) {
  const auto ignore = [] {
    std::signal(SIGINT, SIG_IGN);
    Signals signals;
    ::kill(::getpid(), SIGINT);
    ::kill(::getpid(), SIGUSR1);
    expect_arrival(signals, 1 << 2);
    std::exit(signals.arrived() == 1 << 2 ? 0 : 2);
  };
  EXPECT_EXIT(alone(ignore), testing::ExitedWithCode(0), "");
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
