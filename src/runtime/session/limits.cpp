#include "runtime/session/limits.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>

namespace ztrain::runtime {
namespace {

struct Limit {
  decltype(RLIMIT_STACK) resource;
  const char* what;
  rlim_t least;   ///< MPI does not start below it
  rlim_t wanted;  ///< value that the limit is raised to if that is allowed; 0: left as it is
  const char* ulimit;
  rlim_t unit;  ///< unit in which ulimit counts
};

constexpr rlim_t kib = 1 << 10, mib = 1 << 20;
/// Size of a stack if nobody has set a limit.
constexpr rlim_t usual_stack = 8 * mib;

constexpr std::array limits{
    // Data of more files than the usual limit of 1024 are common.
    Limit{RLIMIT_NOFILE, "open files", 32, RLIM_INFINITY, "-n", 1},
    Limit{RLIMIT_STACK, "bytes of stack", 512 * kib, usual_stack, "-s", kib},
    Limit{RLIMIT_AS, "bytes of address space", 512 * mib, 0, "-v", kib},
};

/// Returns the limit after it was raised.
rlim_t raised(const Limit& limit) {
  rlimit now{};
  if (::getrlimit(limit.resource, &now) != 0) return RLIM_INFINITY;
  const rlim_t before = now.rlim_cur;
  now.rlim_cur = std::max(before, std::min(limit.wanted, now.rlim_max));
  return now.rlim_cur == before || ::setrlimit(limit.resource, &now) == 0 ? now.rlim_cur : before;
}

/// Sets the stacks of threads, which otherwise are as large as the limit was when the process began.
void give_threads_the_usual_stack() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < usual_stack &&
      pthread_attr_setstacksize(&attributes, usual_stack) == 0)
    pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

}  // namespace

std::string raise_limits() {
  std::string too_low;
  for (const Limit& limit : limits) {
    const rlim_t allowed = raised(limit);
    if (allowed < limit.least && too_low.empty())
      too_low = fmt::format(
          "this process may have {} {}, which is too little to start: raise that limit (`ulimit {} {}` or "
          "more, by those who set it if it cannot be raised here)",
          allowed, limit.what, limit.ulimit, limit.least / limit.unit);
  }
  give_threads_the_usual_stack();
  return too_low;
}

}  // namespace ztrain::runtime
