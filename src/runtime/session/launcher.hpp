#pragma once
// What this process knows of its launcher, and how it tells it that the job has failed. Open MPI's mpirun
// prints a dozen lines of its own where a rank returns a non-zero status or calls MPI_Abort, and a user would
// read those instead of the error. Asked to end the job through PMIx, as MPI_Abort does behind its own
// message, it prints nothing.

namespace ztrain::runtime {

class Session;

/// Before MPI starts: what Open MPI needs to be told where no launcher has started this process, and does not
/// matter elsewhere. What the environment says already holds. Throws as require_one_job.
void prepare_process_alone();

/// For a process that is a job of one rank: throws Error where srun has started several such tasks, which
/// know nothing of each other. Each would be a run of its own, all in the same folders.
void require_one_job();

/// Asks mpirun to end all ranks, and itself with this status. False, with nothing done, where something else
/// started this process: other launchers say little, so that a non-zero status is enough, and a shell under
/// mpirun has to hear of the status. One rank is enough, and several may ask, as ranks that fail at once do.
/// Whoever asks, and who knows of it, waits then to be ended: mpirun may lock itself up where ranks that it
/// is about to end finalise MPI and exit meanwhile.
bool ask_launcher_to_end(int status);

/// Collective: every rank is about to return this non-zero status from main, and rank 0 has said why. Does
/// not return where the launcher ends the ranks.
void end_all(const Session& session, int status);

/// For one rank that goes on no more, and whose other threads may be stuck in anything: asks the launcher to
/// end all, and ends this process at any rate. What is to be read has been printed.
[[noreturn]] void end_stuck(int status);

}  // namespace ztrain::runtime
