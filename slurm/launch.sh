#!/usr/bin/env bash
# Starts ztrain inside a SLURM allocation; the sbatch scripts beside this file end in it.
#   slurm/launch.sh DECK [--section.key=value ...]
#
# Environment
#   ZTRAIN           the executable                            (default: build/cpu/ztrain of this checkout)
#   ZTRAIN_MPI       srun's MPI plugin                         (default: pmix)
#   ZTRAIN_RESTARTS  how often a job may requeue itself        (default: 50)
#
# When the time limit nears, SLURM sends SIGUSR1 to this shell (--signal=B:USR1@120 in the scripts): it requeues the
# job, and the next start goes on from the newest checkpoint (checkpoint.resume = "auto"). ztrain itself saves by
# checkpoint.interval alone, so that interval bounds the work that is done again. The same holds after a node failure,
# where SLURM requeues the job by itself (--requeue). A run that fails is not requeued: its exit code is the job's.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ztrain=${ZTRAIN:-$root/build/cpu/ztrain}
plugin=${ZTRAIN_MPI:-pmix}

die() {
  echo "slurm/launch.sh: $*" >&2
  exit 1
}

[ $# -ge 1 ] || die "which deck? usage: launch.sh DECK [--section.key=value ...]"
deck=$1
shift
[ -n "${SLURM_JOB_ID:-}" ] || die "not inside a SLURM job: submit one of the scripts in slurm/ with sbatch"
[ -f "$deck" ] || die "$deck: no such deck (paths are relative to $PWD)"
[ -x "$ztrain" ] || die "$ztrain: no such executable; build it (cmake --preset cpu && cmake --build --preset cpu) or set ZTRAIN"

# Without the plugin that its MPI expects, every task would start as a job of one rank of its own.
plugins=$(srun --mpi=list 2>&1 || true)
if ! grep -qw "$plugin" <<<"$plugins"; then
  die "this SLURM has no MPI plugin '$plugin'. It has: $(tr '\n' ' ' <<<"$plugins")
Ask for one built with PMIx, or set ZTRAIN_MPI to the plugin that your MPI library supports."
fi

# One thread per rank: ranks, not threads, fill the cores.
export OMP_NUM_THREADS=1

restarts=${SLURM_RESTART_COUNT:-0}
echo "ztrain job $SLURM_JOB_ID, start $((restarts + 1)): ${SLURM_NTASKS:-?} ranks on ${SLURM_NNODES:-?} nodes" \
  "(${SLURM_JOB_NODELIST:-?}), $(date -Is)"

timed_out=0
trap 'timed_out=1' USR1

# A deck that says otherwise would start anew after every requeue.
case " $* " in *" --checkpoint.resume"*) ;; *) set -- "$@" --checkpoint.resume=auto ;; esac
srun --mpi="$plugin" --kill-on-bad-exit=1 --cpu-bind=cores "$ztrain" "$deck" "$@" &
step=$!
code=0
wait "$step" || code=$?

if [ "$timed_out" = 1 ]; then
  if [ "$restarts" -ge "${ZTRAIN_RESTARTS:-50}" ]; then
    die "the time limit is near, and the job has already been restarted $restarts times (ZTRAIN_RESTARTS)"
  fi
  echo "time limit near: requeueing job $SLURM_JOB_ID, $(date -Is)"
  scontrol requeue "$SLURM_JOB_ID"
  # SLURM ends this job, and with it the step, as a part of requeueing it.
  wait "$step" || true
  exit 0
fi
exit "$code"
