#pragma once
// Threads beside the one that the process began with.

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ztrain {

/// Blocks all signals in this thread for as long as it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// A thread inherits what is blocked. One that took a signal for which the others are to be asked, before
/// they have blocked it, would end the process. Throws std::system_error where there can be no further
/// thread.
template <class Work>
std::thread thread_without_signals(Work work) {
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace ztrain
