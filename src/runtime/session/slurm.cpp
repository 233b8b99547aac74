#include "runtime/session/slurm.hpp"

#include <charconv>
#include <cstdlib>

namespace ztrain::runtime {
namespace {
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns the end of the allocation. For a job without a limit, SLURM names one many years away.
std::optional<double> end_of_allocation() {
  const std::string text = environment("SLURM_JOB_END_TIME");
  double end = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), end);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole && end > 0 && !environment("SLURM_JOB_ID").empty() ? std::optional(end) : std::nullopt;
}

}  // namespace

SlurmHints slurm_hints() {
  return {environment("SLURM_JOB_ID"), std::atoi(environment("SLURM_RESTART_COUNT").c_str()),
          std::atoi(environment("ZTRAIN_TRY").c_str()), end_of_allocation()};
}

}  // namespace ztrain::runtime
