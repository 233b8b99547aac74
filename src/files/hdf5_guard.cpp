#include "files/hdf5_guard.hpp"

#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/plain_text.hpp"

namespace ztrain::hdf5 {
namespace {

/// 0: none.
void limit_time(int seconds) {
  const itimerval once{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_VIRTUAL, &once, nullptr);
}

}  // namespace

const Guard*& Guard::innermost() {
  static const Guard* one = nullptr;
  return one;
}

/// Calls what a handler may call alone.
void Guard::tell(int signal) {
  const Guard* guard = innermost();
  // Time that is up is told to any thread.
  if (guard != nullptr && (signal == SIGVTALRM || pthread_equal(guard->thread_, pthread_self()))) {
    const ssize_t written = write(STDERR_FILENO, guard->message_.data(), guard->message_.size());
    _exit(written >= 0 ? 1 : 2);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Guard::Guard(const std::string& path, int most_seconds)
    : message_(fmt::format("ztrain: '{}': the HDF5 library cannot cope with what is in this file: it is "
                           "damaged; restore it or make it again\n",
                           printable(path, most_quoted))),
      thread_(pthread_self()),
      outer_(innermost()) {
  innermost() = this;
  struct sigaction action {};
  action.sa_handler = tell;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &before_[i]);
  if (most_seconds > 0) limit_time(most_seconds);
}

Guard::~Guard() {
  if (outer_ == nullptr) limit_time(0);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
  innermost() = outer_;
}

}  // namespace ztrain::hdf5
