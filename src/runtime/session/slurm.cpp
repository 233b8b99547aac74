#include "runtime/session/slurm.hpp"

#include <cstdlib>

namespace ztrain::runtime {
namespace {
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
}  // namespace

SlurmHints slurm_hints() {
  return {environment("SLURM_JOB_ID"), environment("SLURM_JOB_NODELIST"),
          std::atoi(environment("SLURM_RESTART_COUNT").c_str())};
}

}  // namespace ztrain::runtime
