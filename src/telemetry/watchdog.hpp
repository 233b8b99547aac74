#pragma once
// Ends a rank that makes no progress, and says what it was waiting for: a job that hangs would burn its whole
// allocation.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace ztrain::telemetry {

class Watchdog {
 public:
  /// Called from the watchdog's thread, once, with the message.
  using OnTimeout = std::function<void(const std::string& message)>;

  /// timeout: seconds without a beat; 0: never, and no thread is started. The default action prints the
  /// message to stderr and ends the process with status 1 at once; the MPI launcher then ends the other
  /// ranks.
  Watchdog(double timeout, int rank, std::string host, OnTimeout on_timeout = print_and_exit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Progress was made (a step finished, a batch was evaluated, a file was written); op comes next. Never
  /// allocates.
  void beat(std::string_view op);
  /// op begins: named if nothing follows, but no reason to wait longer. Never allocates.
  void enter(std::string_view op);

  [[noreturn]] static void print_and_exit(const std::string& message);

 private:
  void watch();
  void set(std::string_view op);

  const std::chrono::duration<double> timeout_;
  const int rank_;
  const std::string host_;
  const OnTimeout on_timeout_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::chrono::steady_clock::time_point last_beat_;
  char op_[256] = "start";
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ztrain::telemetry
