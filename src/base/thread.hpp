#pragma once
// Threads beside the one that the process began with.

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ztrain {

/// A thread inherits what is blocked. One that took a signal for which the others are to be asked, before
/// they have blocked it, would end the process.
template <class Work>
std::thread thread_without_signals(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ztrain
