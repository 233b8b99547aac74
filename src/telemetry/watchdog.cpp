#include "telemetry/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host_threads.hpp"

namespace ztrain::telemetry {
namespace {

constexpr double after_the_speaker =
    5;  ///< seconds that others wait longer than the speaking rank waits for answers

std::string not_asked(const std::exception& error) {
  return fmt::format("the ranks could not be asked where they are: {}\n", reason_of(error));
}

/// Runs work that may never end, such as reading files, on a thread that is left behind if it does not. The
/// work owns what it needs. A failure becomes its text.
std::future<std::string> aside(std::function<std::string()> work) {
  const auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> future = promise->get_future();
  try {
    thread_without_signals([work = std::move(work), promise] {
      try {
        promise->set_value(work());
      } catch (const std::exception& error) {
        promise->set_value(not_asked(error));
      }
    }).detach();
  } catch (const std::system_error& error) {
    promise->set_value(not_asked(error));  // no further thread can be made
  }
  return future;
}

}  // namespace

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
  told_ = false;
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

Watchdog::Exchange::Exchange(Watchdog& watchdog, PlaceFolder folder, std::function<Place()> place)
    : watchdog_(watchdog) {
  Place first = place();
  {
    const std::lock_guard lock(watchdog.mutex_);
    first = watchdog.completed(std::move(first));
  }
  first.written = 0;  // marks the place as no answer
  write_place(folder.path, first);
  const std::lock_guard lock(watchdog.mutex_);
  watchdog.places_ = std::move(folder);
  watchdog.place_ = std::move(place);
}

Watchdog::Exchange::~Exchange() {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.places_.reset();
  watchdog_.place_ = nullptr;
}

Place Watchdog::place_now() const {
  return completed(place_());
}

Place Watchdog::completed(Place place) const {
  place.process = static_cast<int>(::getpid());
  place.phase = op_;
  place.written = wall_clock();
  return place;
}

/// Writes this rank's place when half of the timeout is over, for ranks whose timeout ends sooner.
void Watchdog::tell_place() {
  told_ = true;
  if (!places_) return;
  aside([path = places_->path, place = place_now()] {
    write_place(path, place);
    return std::string();
  });
}

/// Returns whether this rank is the one to speak; then adds to `text` what the ranks say. Releases the lock
/// while it reads /proc and waits for other ranks, because beat() needs the lock.
bool Watchdog::consult(std::string& text, std::unique_lock<std::mutex>& lock) {
  if (!places_) {
    lock.unlock();
    text += stopped_neighbours();
    lock.lock();
    return true;
  }
  const PlaceFolder folder = *places_;
  const Place place = place_now();
  const double idle = std::chrono::duration<double>(std::chrono::steady_clock::now() - last_beat_).count();
  const double seconds = patience();
  lock.unlock();
  auto answer = aside([=] { return folder.ask(place, wall_clock() - idle - 1, seconds); });
  const bool answered =
      answer.wait_for(std::chrono::duration<double>(2 * seconds + 5)) == std::future_status::ready;
  std::string verdict = answered ? answer.get() : fmt::format("{} does not answer\n", folder.path);
  lock.lock();
  text += "\n" + verdict;
  return !verdict.empty();
}

double Watchdog::patience() const {
  return std::clamp(timeout_.count(), 1.0, 30.0);
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
    const auto wait = std::chrono::duration_cast<Clock::duration>(timeout_);
    const auto deadline = last_beat_ + wait;
    if (!told_ && Clock::now() >= last_beat_ + wait / 2) tell_place();
    if (const auto before = Clock::now(); before < deadline) {
      wake_.wait_until(lock, std::min({deadline, before + look, told_ ? deadline : last_beat_ + wait / 2}));
      // The clock went on while the process was stopped (Ctrl-Z, scontrol suspend). That is not a hang.
      const auto slept = Clock::now() - before;
      if (slept > stood_still) last_beat_ = std::min(last_beat_ + slept, Clock::now());
      continue;
    }
    std::string text = message();
    const auto since = last_beat_;
    const auto goes_on = [&] { return stop_ || last_beat_ != since; };
    const bool speaks = consult(text, lock);
    // The job ends with the rank that speaks. If that does not happen, this rank ends too.
    if (!speaks) wake_.wait_for(lock, std::chrono::duration<double>(patience() + after_the_speaker), goes_on);
    if (goes_on()) continue;  // the rank was only slow
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
  // The launcher forwards stderr on another path than the news of this rank's end.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::_Exit(1);
}

}  // namespace ztrain::telemetry
