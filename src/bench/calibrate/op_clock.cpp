#include "bench/calibrate/op_clock.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/clock.hpp"
#include "base/shape.hpp"

namespace ztrain::bench {
namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double cpu_seconds() {
  return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

/// Returns the least seconds between two readings, which every measurement has in it.
double least_between() {
  double least = 1;
  for (int i = 0; i < 100; ++i) {
    const double start = cpu_seconds();
    least = std::min(least, cpu_seconds() - start);
  }
  return least;
}

}  // namespace

int threads_of_rank() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  return threads == nullptr ? 1 : std::max(1, std::atoi(threads));
}

UsedSeconds used_seconds() {
  UsedSeconds used{seconds_of(CLOCK_PROCESS_CPUTIME_ID), 0};
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  // user, nice, system, idle, waiting for drives, interrupts, soft interrupts, stolen
  for (int i = 0; i < 8; ++i)
    if (double ticks = 0; file >> ticks && i != 3 && i != 4)
      used.all += ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return used;
}

OpClock::OpClock(const program::Program& program)
    : issues_(program), overhead_(least_between()), seconds_(at(issues_.size())) {}

double OpClock::time() const {
  return one_thread_ ? cpu_seconds() : now();
}

void OpClock::look_before(program::OpId) {
  start_ = time();
}

void OpClock::look_after(program::OpId issue) {
  seconds_[at(issue)].push_back(std::max(0.0, time() - start_ - overhead_));
}

std::vector<double> OpClock::medians() {
  std::vector<double> found;
  for (std::vector<double>& of_issue : seconds_) {
    std::ranges::sort(of_issue);
    found.push_back(of_issue.empty() ? 0 : of_issue[of_issue.size() / 2]);
  }
  return found;
}

}  // namespace ztrain::bench
