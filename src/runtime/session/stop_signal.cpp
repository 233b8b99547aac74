#include "runtime/session/stop_signal.hpp"

#include <ctime>

namespace ztrain::runtime {

StopSignal::StopSignal() {
  sigemptyset(&watched_);
  sigaddset(&watched_, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
}

StopSignal::~StopSignal() {
  // One that comes now asks for what has been done, and would end the process with its status.
  std::signal(SIGUSR1, SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignal::arrived() {
  const timespec at_once{0, 0};
  if (!arrived_) arrived_ = sigtimedwait(&watched_, nullptr, &at_once) == SIGUSR1;
  return arrived_;
}

}  // namespace ztrain::runtime
