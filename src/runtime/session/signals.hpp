#pragma once
// What signals ask of a run: SIGTERM, SIGINT and SIGUSR1 to save and end, SIGUSR2 to save and go on. Nothing
// runs in a signal handler: they are blocked in all threads, and one thread waits for them.

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
    unsigned bit;  ///< in sets of signals
    bool ends;     ///< a process that does not catch it, as its default action does
  };
  static constexpr unsigned save = 1 << 3;  ///< the bit of that which asks for no end
  static constexpr std::array<Kind, 4> kinds{{{SIGTERM, "SIGTERM", 1 << 0, true},
                                              {SIGINT, "SIGINT", 1 << 1, true},
                                              {SIGUSR1, "SIGUSR1", 1 << 2, false},
                                              {SIGUSR2, "SIGUSR2", save, false}}};

  /// To be made before other threads are, which then have the signals blocked too. SIGINT and SIGTERM that
  /// this process was told to ignore stay ignored.
  Signals();
  /// SIGUSR1 and SIGUSR2 are ignored from here on: one that comes now asks for what has been done, and would
  /// end the process with its status.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Those that have arrived: that which asks for a save until it is asked for, the others for good.
  unsigned arrived();

  /// While it lives, SIGTERM and the first SIGINT are kept for arrived(), as the others always are. Otherwise
  /// they end the process at once, as a second SIGINT does.
  class Caught {
   public:
    /// notice: called by the waiting thread with each that is kept.
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
  std::mutex mutex_;  ///< of what follows
  bool caught_ = false;
  std::function<void(const Kind&)> notice_;
  std::thread thread_;
};

}  // namespace ztrain::runtime
