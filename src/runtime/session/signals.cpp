#include "runtime/session/signals.hpp"

#include <utility>

namespace ztrain::runtime {
namespace {

bool is_ignored(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

/// Ends the process with the status of the signal, as if nobody had blocked it.
void end_by(int number) {
  std::signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(number);
}

}  // namespace

Signals::Signals() {
  sigemptyset(&watched_);
  for (const Kind& kind : kinds)
    if (!kind.ends || !is_ignored(kind.number)) sigaddset(&watched_, kind.number);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  thread_ = std::thread([this] { wait(); });
}

Signals::~Signals() {
  over_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
  for (const Kind& kind : kinds)
    if (!kind.ends) std::signal(kind.number, SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

unsigned Signals::arrived() {
  return arrived_.fetch_and(~save);
}

void Signals::wait() {
  int number = 0;
  while (sigwait(&watched_, &number) == 0) {
    if (over_) return;
    for (const Kind& kind : kinds)
      if (kind.number == number) take(kind);
  }
}

void Signals::take(const Kind& kind) {
  const std::lock_guard lock(mutex_);
  const bool again = kind.number == SIGINT && (arrived_ & kind.bit) != 0;
  if (kind.ends && (!caught_ || again)) end_by(kind.number);
  arrived_ |= kind.bit;
  if (notice_) notice_(kind);
}

Signals::Caught::Caught(Signals& signals, std::function<void(const Kind&)> notice) : signals_(signals) {
  const std::lock_guard lock(signals_.mutex_);
  signals_.caught_ = true;
  signals_.notice_ = std::move(notice);
}

Signals::Caught::~Caught() {
  const std::lock_guard lock(signals_.mutex_);
  signals_.caught_ = false;
  signals_.notice_ = nullptr;
}

}  // namespace ztrain::runtime
