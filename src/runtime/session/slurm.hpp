#pragma once
// Reads what SLURM tells a job through its environment. These are hints: nothing depends on them.

#include <optional>
#include <string>

namespace ztrain::runtime {

struct SlurmHints {
  std::string job_id;         ///< empty outside a job
  int restart_count = 0;      ///< times that the job was requeued
  int tries = 1;              ///< times that slurm/launch.sh has started training since then
  std::optional<double> end;  ///< end of the allocation, in seconds since 1970, if it is known
  bool started_before() const { return restart_count > 0 || tries > 1; }
};

SlurmHints slurm_hints();

}  // namespace ztrain::runtime
