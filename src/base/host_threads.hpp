#pragma once
// Makes threads besides the first one of the process. Keeps threads that share recurring work, so that no
// thread is made for it. Describes the machine that threads run on.

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ztrain {

/// Blocks all signals in this thread while it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Starts a thread that inherits blocked signals. Before it could block them itself, a signal that the others
/// should handle would end the process. Throws std::system_error if no further thread can be made.
template <class Work>
std::thread thread_without_signals(Work work) {
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

/// Threads on the cores of the thread that makes them. They take no signals.
class HostThreads {
 public:
  /// count includes the thread that calls share(). There are fewer if no further thread can be made.
  explicit HostThreads(int count);
  ~HostThreads();

  int count() const { return static_cast<int>(others_.size()) + 1; }
  /// Calls work(0), ..., work(parts - 1), each once and in any order, and returns when all are done. Any
  /// thread may call share(), but not two at once. If work throws, no further part is begun, and share()
  /// throws the first exception after all threads have left work. Allocates nothing.
  void share(std::int64_t parts, const std::function<void(std::int64_t)>& work);

 private:
  void take();
  void wait_for_work();

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(std::int64_t)>* work_ = nullptr;
  std::int64_t parts_ = 0, number_ = 0;  ///< number_ counts the calls of share()
  int at_work_ = 0;
  std::exception_ptr failure_;  ///< first exception of the present call of share(), under mutex_
  bool stopping_ = false;
  std::atomic<std::int64_t> next_ = 0;
  std::vector<std::thread> others_;
};

/// Returns the cores that this process may use: its affinity, which a launcher sets.
int usable_cores();
/// Returns the cores of the machine.
int all_cores();
/// Returns SLURM's name of this node, as `--exclude` takes it; without SLURM the host's name, which may
/// differ.
std::string node_name();

}  // namespace ztrain
