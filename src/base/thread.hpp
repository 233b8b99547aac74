#pragma once
// Threads besides the process's first one.

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ztrain {

/// Blocks all signals in this thread while it lives.
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

/// Starts a thread that inherits blocked signals. Before it could block them itself, a signal that the others
/// should handle would end the process. Throws std::system_error if no further thread can be made.
template <class Work>
std::thread thread_without_signals(Work work) {
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace ztrain
