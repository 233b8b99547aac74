#pragma once
// What SLURM tells a job through its environment. Hints only: nothing depends on them.

#include <optional>
#include <string>

namespace ztrain::runtime {

struct SlurmHints {
  std::string job_id;         ///< empty outside a job
  int restart_count = 0;      ///< how often the job was requeued
  int tries = 1;              ///< how often slurm/launch.sh has started training since then
  std::optional<double> end;  ///< of the allocation, in seconds since 1970, where it is known
  bool started_before() const { return restart_count > 0 || tries > 1; }
};

SlurmHints slurm_hints();

}  // namespace ztrain::runtime
