#pragma once
// HDF5 (1.10 as packaged by Debian among them) follows wild pointers on some damaged files, and goes round
// for ever on others, which no check beforehand finds. Then the file is named, and the process ends with 1,
// instead of a signal that tells nobody anything, or never.

#include <pthread.h>

#include <array>
#include <csignal>
#include <string>

namespace ztrain::hdf5 {

/// While it lives, this thread is in the library with this file. Guards nest. Under the library's lock
/// (Quiet).
class Guard {
 public:
  /// most_seconds: of the process' time, for what takes next to none; 0: as long as it takes.
  explicit Guard(const std::string& path, int most_seconds = 0);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

 private:
  static constexpr std::array signals{SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGVTALRM};
  static const Guard*& innermost();
  static void tell(int signal);

  std::string message_;
  pthread_t thread_;
  const Guard* outer_;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace ztrain::hdf5
