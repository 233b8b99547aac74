#include "telemetry/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/thread.hpp"

namespace ztrain::telemetry {

Watchdog::Watchdog(double timeout, OnTimeout on_timeout)
    : timeout_(timeout),
      name_(fmt::format("process {}", ::getpid())),
      on_timeout_(std::move(on_timeout)),
      thread_(thread_without_signals([this] { watch(); })) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::set_timeout(double seconds) {
  {
    const std::lock_guard lock(mutex_);
    timeout_ = std::chrono::duration<double>(seconds);
    last_beat_ = std::chrono::steady_clock::now();
  }
  wake_.notify_all();
}

void Watchdog::set_name(std::string name) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
}

void Watchdog::set_action(OnTimeout on_timeout) {
  const std::lock_guard not_during_one(acting_);
  const std::lock_guard lock(mutex_);
  on_timeout_ = std::move(on_timeout);
}

void Watchdog::set_detail(std::function<std::string()> where) {
  const std::lock_guard lock(mutex_);
  where_ = std::move(where);
}

void Watchdog::beat(std::string_view op) {
  const std::lock_guard lock(mutex_);
  last_beat_ = std::chrono::steady_clock::now();
  const std::size_t length = std::min(op.size(), sizeof op_ - 1);
  std::memcpy(op_, op.data(), length);
  op_[length] = '\0';
}

Watchdog::Detail::Detail(Watchdog& watchdog, std::function<std::string()> where) : watchdog_(watchdog) {
  watchdog.set_detail(std::move(where));
}

Watchdog::Detail::~Detail() {
  watchdog_.set_detail({});
}

std::string Watchdog::message() const {
  const std::string where = where_ ? where_() : "";
  return fmt::format("{}: no progress for {:g} s (watchdog.timeout); waiting in: {}{}", name_,
                     timeout_.count(), op_, where.empty() ? "" : " (" + where + ")");
}

void Watchdog::watch() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds look{250}, stood_still{1000};
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (timeout_.count() <= 0) {
      wake_.wait(lock);
      continue;
    }
    const auto deadline = last_beat_ + std::chrono::duration_cast<Clock::duration>(timeout_);
    if (const auto before = Clock::now(); before < deadline) {
      wake_.wait_until(lock, std::min(deadline, before + look));
      // The clock went on while the process was stopped (Ctrl-Z, scontrol suspend): that is no hang.
      const auto slept = Clock::now() - before;
      if (slept > stood_still) last_beat_ = std::min(last_beat_ + slept, Clock::now());
      continue;
    }
    const std::string text = message();
    lock.unlock();
    const std::lock_guard acts(acting_);
    on_timeout_(text);
    return;
  }
}

void Watchdog::print(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "ztrain: %s\n", message.c_str());
  std::fflush(stderr);
}

void Watchdog::print_and_exit(const std::string& message) {
  print(message);
  // The launcher forwards stderr by another path than it learns of our end.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::_Exit(1);
}

}  // namespace ztrain::telemetry
