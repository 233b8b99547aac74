#pragma once
// HDF5 (1.10 as packaged by Debian among them) follows wild pointers on some damaged files, which no check
// beforehand finds. Then the file is named, and the process ends with 1, instead of a signal that tells
// nobody anything.

#include <pthread.h>

#include <array>
#include <csignal>
#include <string>

namespace ztrain::hdf5 {

/// While it lives, this thread is in the library with this file. Guards nest. Under the library's lock
/// (Quiet).
class Guard {
 public:
  explicit Guard(const std::string& path);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

 private:
  static constexpr std::array signals{SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
  static const Guard*& innermost();
  static void tell(int signal);

  std::string message_;
  pthread_t thread_;
  const Guard* outer_;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace ztrain::hdf5
