#pragma once
// Finds out about this process's launcher, and tells it that the job has failed. Open MPI's
// mpirun prints a dozen lines if a rank returns a non-zero status or calls MPI_Abort, and a user would read
// those instead of the error. Asked to end the job through PMIx, as MPI_Abort does after its own message, it
// prints nothing.

#include <optional>
#include <string>

#include "base/launchers.hpp"

namespace ztrain::runtime {

class Session;

/// Before MPI starts: sets what Open MPI needs if no launcher has started this process, and does not matter
/// otherwise. Values in the environment take precedence. Throws as require_one_job if this MPI library cannot
/// find the other ranks by what the launcher offers.
void prepare_process(const std::optional<Started>& started);

/// For a job of one rank: throws Error if the launcher has started several such tasks, which know nothing of
/// each other. Each would be a run of its own, all in the same folders. `started` is from before MPI started:
/// MPI may set the variables of launchers itself.
void require_one_job(const std::optional<Started>& started);

/// Asks mpirun to end all ranks, and itself, with this status. Returns false, without effect, if something
/// else started this process: other launchers say little, and a shell under mpirun must see the status. One
/// rank is enough, and several may ask. Ranks that ask or know of it then wait to be ended: mpirun may hang
/// if ranks that it is about to end finalise MPI and exit meanwhile.
bool ask_launcher_to_end(int status);

/// Collective. Every rank is about to return this non-zero status from main, and rank 0 has said why. Does
/// not return if the launcher ends the ranks.
void end_all(const Session& session, int status);

/// Ends one rank whose other threads may be stuck in anything: asks the launcher to end all, and in any case
/// ends this process. Everything to be read has been printed.
[[noreturn]] void end_stuck(int status);

/// How mpirun of Open MPI ends the ranks if it gets SIGINT or SIGTERM.
struct MpirunEnd {
  std::string program;  ///< name of its process, such as "mpirun" or "mpiexec"
  int wait = 1;         ///< seconds before it sends SIGTERM to the ranks, and again before SIGKILL
};

/// Returns nothing if mpirun did not start this rank, or did so within a step of SLURM.
std::optional<MpirunEnd> mpirun_end();

struct SlurmHints {
  std::string job_id;         ///< empty outside a job
  int restart_count = 0;      ///< times that the job was requeued
  int tries = 1;              ///< times that slurm/launch.sh has started training since then
  std::optional<double> end;  ///< end of the allocation, in seconds since 1970, if it is known
  bool started_before() const { return restart_count > 0 || tries > 1; }
};

SlurmHints slurm_hints();

}  // namespace ztrain::runtime
