#pragma once
// Ends a rank that makes no progress, and says what it was waiting for: a job that hangs would burn its whole
// allocation. It watches from the first line of main on, since what hangs may be a file system that a deck
// lies on, or MPI itself.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "telemetry/place.hpp"

namespace ztrain::telemetry {

class Watchdog {
 public:
  /// Called from the watchdog's thread, once, with the message.
  using OnTimeout = std::function<void(const std::string& message)>;

  /// timeout: seconds without a beat; 0: never. The default action prints the message to stderr and ends the
  /// process with status 1 at once; the MPI launcher then ends the other ranks. Its thread takes no signals.
  explicit Watchdog(double timeout, OnTimeout on_timeout = print_and_exit);
  ~Watchdog();

  /// From now on, which is a beat.
  void set_timeout(double seconds);
  /// Who has not gone on, for the message: "rank 3 (node7)". Before that it is the process by its number.
  void set_name(std::string name);
  /// Returns once an action that is under way is over, which may use what its owner is about to destroy.
  void set_action(OnTimeout on_timeout);

  /// Progress was made (a step finished, a batch was evaluated, a file was written); op comes next. Never
  /// allocates.
  void beat(std::string_view op);

  /// Adds to messages where exactly the work is, for as long as it lives. Asked from the watchdog's thread;
  /// "" for nothing.
  class Detail {
   public:
    Detail(Watchdog& watchdog, std::function<std::string()> where);
    ~Detail();
    Detail(const Detail&) = delete;
    Detail& operator=(const Detail&) = delete;

   private:
    Watchdog& watchdog_;
  };

  /// For as long as it lives, ranks that make no progress tell each other where they are, by files in a
  /// folder, and the first of those that answer tells of all. A rank that goes on meanwhile is not ended. Its
  /// first file says which process this rank is; throws Error where it cannot be written.
  class Exchange {
   public:
    Exchange(Watchdog& watchdog, PlaceFolder folder, std::function<Place()> place);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    Watchdog& watchdog_;
  };

  static void print(const std::string& message);
  [[noreturn]] static void print_and_exit(const std::string& message);

 private:
  void watch();
  void set_detail(std::function<std::string()> where);
  void tell_place();
  Place place_now() const;
  Place completed(Place place) const;
  bool consult(std::string& text, std::unique_lock<std::mutex>& lock);
  /// Seconds that other ranks' answers are waited for.
  double patience() const;
  std::string message() const;

  mutable std::mutex mutex_;
  std::mutex acting_;  ///< held while on_timeout_ is called or changed; locked before mutex_
  std::condition_variable wake_;
  std::chrono::duration<double> timeout_;
  std::string name_;
  OnTimeout on_timeout_;
  std::function<std::string()> where_;
  std::optional<PlaceFolder> places_;
  std::function<Place()> place_;
  bool told_ = false;  ///< of this wait
  std::chrono::steady_clock::time_point last_beat_ = std::chrono::steady_clock::now();
  char op_[256] = "start";
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ztrain::telemetry
