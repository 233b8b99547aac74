#pragma once
// Operations, each with those that must be done before it. They run only when somebody asks, in an order
// drawn from a seed.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

namespace late_cuda {

struct Operation;
using Place = std::shared_ptr<Operation>;
using Places = std::vector<Place>;
using Lock = std::unique_lock<std::mutex>;

struct Operation {
  std::function<bool()> run;  ///< polled until true; empty: a place in the order, and nothing to do
  const char* what = "";
  int stream = 0;
  Places after{};
  bool done = false;
  double seconds = 0;  ///< on a clock, when it was done

  bool ready() const;
};

bool all_done(const Places& places);
/// The operations before these and themselves, as far as they are not done.
std::set<const Operation*> up_to(const Places& places);

class Work {
 public:
  explicit Work(std::uint64_t seed) : random_(seed) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  Place add(Operation operation);
  /// Until all are done. Sometimes only what they need runs, sometimes more. Releases the lock for moments
  /// while operations wait for other processes.
  void run_until(const Places& places, Lock& lock);
  void run_all(Lock& lock) { run_until(Places(pending_), lock); }
  /// Polls a few operations that are ready; false: there are none.
  bool poll_some();
  /// Nothing of it will run.
  void drop();
  std::uint64_t draw() { return random_(); }

 private:
  /// Runs ahead of others in streams that the order puts first.
  const Place& choose(const Places& ready, std::uint64_t order);
  bool poll(const Place& operation);

  Places pending_;  ///< in the order in which they were given
  std::mt19937_64 random_;
};

}  // namespace late_cuda
