#include "files/hdf5_guard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "base/plain_text.hpp"

namespace ztrain::hdf5 {

const Guard*& Guard::innermost() {
  static const Guard* one = nullptr;
  return one;
}

/// Calls what a handler may call alone.
void Guard::tell(int signal) {
  const Guard* guard = innermost();
  if (guard != nullptr && pthread_equal(guard->thread_, pthread_self())) {
    const ssize_t written = write(STDERR_FILENO, guard->message_.data(), guard->message_.size());
    _exit(written >= 0 ? 1 : 2);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Guard::Guard(const std::string& path)
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
}

Guard::~Guard() {
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
  innermost() = outer_;
}

}  // namespace ztrain::hdf5
