// Work on several threads, also where none can be made.

#include "base/parallel.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>
#include <system_error>

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

TEST(Parallel, SignalsAreAsTheyWereWhereNoThreadCanBeMade) {
  const NoFurtherThread none;
  EXPECT_THROW(thread_without_signals([] {}), std::system_error);
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGTERM), 0);
}

}  // namespace
}  // namespace ztrain::parallel_test
