#pragma once
// Tells what signals ask of a run: SIGTERM, SIGINT and SIGUSR1 to save and end, SIGUSR2 to save and go on.
// Nothing runs in a signal handler. Signals are blocked in all threads, and one thread waits for them.

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

namespace ztrain::runtime {

class Signals {
 public:
  struct Kind {
    int number;
    std::string_view name;
    unsigned bit;  ///< bit in sets of signals
    bool ends;     ///< whether its default action ends a process
  };
  static constexpr unsigned save = 1 << 3;  ///< bit of the signal that asks for a save without an end
  static constexpr std::array<Kind, 4> kinds{{{SIGTERM, "SIGTERM", 1 << 0, true},
                                              {SIGINT, "SIGINT", 1 << 1, true},
                                              {SIGUSR1, "SIGUSR1", 1 << 2, false},
                                              {SIGUSR2, "SIGUSR2", save, false}}};

  /// Must be made before other threads, which then have the signals blocked too. SIGINT and SIGTERM that this
  /// process was told to ignore stay ignored.
  Signals();
  /// From here on SIGUSR1 and SIGUSR2 are ignored: one that comes now asks for what has been done, and would
  /// end the process with its status.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Returns the signals that have arrived. A request for a save is returned once, the others for good.
  unsigned arrived();

  /// While it lives, SIGTERM and the first SIGINT are kept for arrived(), as the others always are. Otherwise
  /// they end the process at once, as a second SIGINT does.
  class Caught {
   public:
    /// The waiting thread calls notice with each signal that is kept.
    Caught(Signals& signals, std::function<void(const Kind&)> notice);
    ~Caught();
    Caught(const Caught&) = delete;
    Caught& operator=(const Caught&) = delete;

   private:
    Signals& signals_;
  };

 private:
  void wait();
  void take(const Kind& kind);

  sigset_t watched_, before_;
  std::atomic<unsigned> arrived_ = 0;
  std::atomic<bool> over_ = false;
  std::mutex mutex_;  ///< guards the members below
  bool caught_ = false;
  std::function<void(const Kind&)> notice_;
  std::thread thread_;
};

}  // namespace ztrain::runtime
