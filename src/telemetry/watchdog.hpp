#pragma once
// Ends a rank that makes no progress, and says what it was waiting for: a hanging job would waste its
// allocation. It watches from the first line of main, because a file system or MPI itself may hang.

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
  /// Gets the message. The watchdog's thread calls it once.
  using OnTimeout = std::function<void(const std::string& message)>;

  /// timeout is the seconds without a beat; 0: never. The default action prints the message to stderr and
  /// ends the process with status 1; the MPI launcher then ends the other ranks. The watchdog's thread takes
  /// no signals.
  explicit Watchdog(double timeout, OnTimeout on_timeout = print_and_exit);
  ~Watchdog();

  /// Sets the timeout, and counts as a beat.
  void set_timeout(double seconds);
  /// Sets the name of this rank in messages, such as "rank 3 (node7)". Before, the process number stands for
  /// it.
  void set_name(std::string name);
  /// Sets the action. Returns once an action under way is over, because it may use what its owner is about to
  /// destroy.
  void set_action(OnTimeout on_timeout);

  /// Notes progress (a step finished, a batch was evaluated, a file was written); `op` comes next. Never
  /// allocates.
  void beat(std::string_view op);

  /// Adds to messages where the work is, while this lives. The watchdog's thread calls the function; it
  /// returns "" for nothing.
  class Detail {
   public:
    Detail(Watchdog& watchdog, std::function<std::string()> where);
    ~Detail();
    Detail(const Detail&) = delete;
    Detail& operator=(const Detail&) = delete;

   private:
    Watchdog& watchdog_;
  };

  /// While this lives, ranks that make no progress tell each other where they are, by files in a folder, and
  /// the first rank that answers tells of all. A rank that goes on meanwhile is not ended. The first file
  /// says which process this rank is. Throws Error if it cannot be written.
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
  /// Returns the seconds to wait for other ranks' answers.
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
  bool told_ = false;  ///< whether the place was written in this wait
  std::chrono::steady_clock::time_point last_beat_ = std::chrono::steady_clock::now();
  char op_[256] = "start";
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ztrain::telemetry
