#include "files/hdf5_guard.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <vector>

#include "base/plain_text.hpp"

namespace ztrain::hdf5 {
namespace {

constexpr std::array signals{SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGVTALRM};

/// What the handler needs of a thread: that the signals come, and a stack for where the library has used up
/// the thread's own, since some files make it call itself without end.
class HandlerOfThread {
 public:
  HandlerOfThread() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : signals) sigaddset(&wanted, signal);
    pthread_sigmask(SIG_UNBLOCK, &wanted, nullptr);
    stack_t present{};
    if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
    memory_.resize(1 << 16);
    const stack_t own{memory_.data(), 0, memory_.size()};
    sigaltstack(&own, nullptr);
  }
  HandlerOfThread(const HandlerOfThread&) = delete;
  HandlerOfThread& operator=(const HandlerOfThread&) = delete;
  ~HandlerOfThread() {
    const stack_t none{nullptr, SS_DISABLE, 0};
    if (!memory_.empty()) sigaltstack(&none, nullptr);
  }

 private:
  std::vector<char> memory_;  ///< empty: the thread had another
};

/// What the signals did before.
std::array<struct sigaction, signals.size()>& actions_before() {
  static std::array<struct sigaction, signals.size()> all{};
  return all;
}

/// As a handler may: without memory of the heap, which may be what is broken.
void write_message(std::string_view path) {
  std::array<char, most_quoted + 1> name{};
  const std::size_t length = std::min<std::size_t>(path.size(), most_quoted);
  std::transform(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length), name.begin(),
                 [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; });
  constexpr std::string_view begin = "ztrain: '",
                             end =
                                 "': the HDF5 library cannot cope with what is in this file: it is damaged; "
                                 "restore it or make it again\n";
  for (const std::string_view part : {begin, std::string_view(name.data(), length), end})
    if (write(STDERR_FILENO, part.data(), part.size()) < 0) return;
}

}  // namespace

thread_local constinit const Guard* Guard::innermost = nullptr;

void Guard::tell(int signal) {
  if (innermost != nullptr) {
    write_message(innermost->path_);
    _exit(1);
  }
  const auto at = std::find(signals.begin(), signals.end(), signal) - signals.begin();
  sigaction(signal, &actions_before()[static_cast<std::size_t>(at)], nullptr);
  std::raise(signal);
}

void Guard::catch_signals() {
  struct sigaction action {};
  action.sa_handler = tell;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &actions_before()[i]);
}

Guard::Guard(std::string_view path, int most_seconds) : path_(path), outer_(innermost) {
  [[maybe_unused]] static const bool once = (catch_signals(), true);
  [[maybe_unused]] static thread_local const HandlerOfThread handler;
  innermost = this;
  if (most_seconds > 0) limit_time(most_seconds);
}

/// Counts the time of this thread alone, since others may be training meanwhile. The signal also goes to this
/// thread, because no other thread reads this thread's guard.
void Guard::limit_time(int seconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  // sigev_notify_thread_id of timer_create(2), which older glibc lacks, as it lacks gettid.
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  event.sigev_signo = SIGVTALRM;
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) return;
  limited_ = true;
  const itimerspec once{{0, 0}, {seconds, 0}};
  timer_settime(timer_, 0, &once, nullptr);
}

Guard::~Guard() {
  if (limited_) timer_delete(timer_);
  innermost = outer_;
}

}  // namespace ztrain::hdf5
