#include "telemetry/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "files/file.hpp"
#include "telemetry/allocation_count.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::telemetry {
namespace {

constexpr int usual_columns = 80;
constexpr const char* remove_text = "\r\033[K";

/// Returns the columns of a terminal, or 0 if the file is none or understands no control sequences.
int columns_of(int file) {
  const char* terminal = std::getenv("TERM");
  if (isatty(file) == 0 || (terminal != nullptr && std::strcmp(terminal, "dumb") == 0)) return 0;
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual_columns;
}

bool same_place(int one, int other) {
  struct stat a {
  }, b{};
  if (fstat(one, &a) != 0 || fstat(other, &b) != 0) return true;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Phase::Phase(Console& console, const char* kind, Detail detail)
    : console_(console), kind_(kind), detail_(std::move(detail)) {
  console_.begin(*this);
}

Phase::Phase(Console& console, const char* kind, std::int64_t number, Detail detail)
    : console_(console), kind_(kind), number_(number), detail_(std::move(detail)) {
  console_.begin(*this);
}

Phase::~Phase() {
  console_.end(*this);
}

void Phase::at(std::string_view where) {
  console_.beat(kind_);
  const std::lock_guard lock(console_.mutex_);
  where_size_ = std::min(where.size(), where_.size());
  std::copy_n(where.begin(), where_size_, where_.begin());
}

std::string Phase::text() const {
  std::string text = number_ ? fmt::format("{} {}", kind_, *number_) : kind_;
  std::string where(where_.data(), where_size_);
  if (detail_)
    if (const std::string detail = detail_(); !detail.empty())
      where += fmt::format("{}{}", where.empty() ? "" : ", ", detail);
  return where.empty() ? text : fmt::format("{}: {}", text, where);
}

Outlet Outlet::of_process() {
  Outlet outlet;
  outlet.columns = columns_of(STDERR_FILENO);
  outlet.together = same_place(STDOUT_FILENO, STDERR_FILENO);
  outlet.watched = isatty(STDOUT_FILENO) != 0;
  return outlet;
}

Console::Console(Watchdog* watchdog) : Console(Outlet{.lines = nullptr}, watchdog) {}

Console::Console(Outlet outlet, Watchdog* watchdog) : outlet_(std::move(outlet)), watchdog_(watchdog) {
  if (!outlet_.now) outlet_.now = ztrain::now;
  last_output_ = outlet_.now();
}

Console::~Console() {
  clear();
}

void Console::beat(const char* phase) const {
  if (watchdog_ != nullptr) watchdog_->beat(phase);
}

void Console::begin(Phase& phase) {
  beat(phase.kind_);
  const std::lock_guard lock(mutex_);
  phase.began_ = outlet_.now();
  phase.outer_ = std::exchange(innermost_, &phase);
}

void Console::end(const Phase& phase) {
  const std::lock_guard lock(mutex_);
  Phase** link = &innermost_;
  while (*link != &phase) link = &(*link)->outer_;
  *link = phase.outer_;
  beat(innermost_ == nullptr ? "what comes behind that" : innermost_->kind_);
}

void Console::print(std::string_view text) {
  write(outlet_.lines, printable_lines(text));
}

void Console::print_bytes(std::string_view bytes) {
  write(outlet_.lines, outlet_.watched ? without_control(bytes) : std::string(bytes));
}

void Console::print_error(std::string_view text) {
  write(outlet_.progress, printable_lines(text));
}

std::string Console::unwritten() const {
  const std::lock_guard lock(mutex_);
  if (error_ == 0) return "";
  return fmt::format("stdout: cannot write all that was to be printed: {}", text_of_errno(error_));
}

/// The lock is only tried: a watchdog calls this while another thread may be stuck in a write to a dead file.
void Console::clear() {
  const std::unique_lock lock(mutex_, std::chrono::seconds(1));
  if (lock.owns_lock()) remove_line();
}

void Console::write(std::FILE* file, std::string_view text) {
  if (!speaks() || text.empty()) return;
  const std::lock_guard lock(mutex_);
  remove_line();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (!written && file == outlet_.lines && error_ == 0) error_ = errno;
  unfinished_ = text.back() != '\n';
  const double now = outlet_.now();
  if (now - last_line_ < outlet_.first)
    intervals_.clear();  // lines come regularly again, so the next stall is a new one
  last_line_ = last_output_ = now;
}

void Console::remove_line() {
  if (!std::exchange(shown_, false)) return;
  std::fputs(remove_text, outlet_.progress);
  std::fflush(outlet_.progress);
}

double Console::interval_of(const Phase& phase) const {
  const auto found = intervals_.find(std::string_view(phase.kind_));
  return found == intervals_.end() ? outlet_.first : found->second;
}

void Console::look() {
  const std::lock_guard lock(mutex_);
  if (!speaks() || innermost_ == nullptr || (unfinished_ && outlet_.together)) return;
  const Phase& phase = *innermost_;
  const double now = outlet_.now();
  if (now - last_output_ < interval_of(phase)) return;
  const double lasts = now - phase.began_;
  std::string line = fmt::format("{}, {}", printable(phase.text()),
                                 lasts < 120 ? fmt::format("{:.0f} s", lasts) : format_duration(lasts));
  if (outlet_.columns > 0)
    rewrite(std::move(line));
  else
    append(phase, line);
}

/// Cuts a line that would run into the next row, which nothing would remove. Keeps the time at the line's
/// end.
void Console::rewrite(std::string line) {
  const auto room = static_cast<std::size_t>(std::max(outlet_.columns - 1, 1));
  if (line.size() > room) {
    const std::string end = " ..." + line.substr(line.rfind(", "));
    line = line.substr(0, room - std::min(room, end.size())) + end;
    line.resize(std::min(line.size(), room));
  }
  std::fprintf(outlet_.progress, "%s%s", remove_text, line.c_str());
  std::fflush(outlet_.progress);
  shown_ = true;
}

void Console::append(const Phase& phase, const std::string& line) {
  intervals_.insert_or_assign(phase.kind_, std::min(2 * interval_of(phase), outlet_.longest));
  std::fprintf(outlet_.progress, "%s\n", line.c_str());
  std::fflush(outlet_.progress);
  last_output_ = outlet_.now();
}

ConsoleThread::ConsoleThread(Console& console) : console_(console), thread_([this] { watch(); }) {}

ConsoleThread::~ConsoleThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ConsoleThread::watch() {
  const AllocationPause pause;  // allocations for a printed line do not count as the step's
  const std::chrono::duration<double> between(console_.between_looks());
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, between, [this] { return stop_; })) console_.look();
}

}  // namespace ztrain::telemetry
