#pragma once
// HDF5 (1.10 as packaged by Debian among them) follows wild pointers on some damaged files, and goes round
// for ever on others, which no check beforehand finds. Then the file is named, and the process ends with 1,
// instead of a signal that tells nobody anything, or never.

#include <ctime>
#include <string_view>

namespace ztrain::hdf5 {

/// While it lives, this thread is in the library with this file. Guards nest. Under the library's lock
/// (Quiet). Cheap enough for each read: the first of the process sets up what the signals do from then on.
class Guard {
 public:
  static constexpr int for_opening = 5;  ///< seconds of computing: little is read then

  /// path outlives it. most_seconds: of computing by this thread, for what takes next to none; 0: as long as
  /// it takes.
  explicit Guard(std::string_view path, int most_seconds = 0);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

 private:
  static void tell(int signal);
  static void catch_signals();
  void limit_time(int seconds);

  /// The guard that this thread made last; null if the thread is not in the library. A signal is handled by
  /// the thread that caused it, so no thread reads the guard of another one.
  static thread_local constinit const Guard* innermost;

  std::string_view path_;
  const Guard* outer_;
  bool limited_ = false;
  timer_t timer_{};
};

}  // namespace ztrain::hdf5
