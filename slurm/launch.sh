#!/usr/bin/env bash
# Starts ztrain inside a SLURM allocation; the sbatch scripts beside this file end in it.
#   slurm/launch.sh DECK [--section.key=value ...]
#
# Environment
#   ZTRAIN              the executable   (default: build/cuda/ztrain in a job with GPUs, else build/cpu/ztrain; or the installed)
#   ZTRAIN_ALLOW_CPU=1  run on the CPU ranks of a job with GPUs, where the executable is not built for these
#   ZTRAIN_MPI          srun's MPI plugin, or "mpirun" to start with mpirun   (default: pmix)
#   ZTRAIN_RESTARTS     how often a job may requeue itself                    (default: 50)
#
# When the time limit nears, SLURM sends SIGUSR1 to this shell (--signal=B:USR1@300 in the scripts). The shell passes
# it on to the ranks: they finish their step, save a checkpoint and end. Then the job requeues itself, and the next
# start goes on from that checkpoint (checkpoint.resume = "auto"). The 300 seconds must hold one step and one save, and
# the job's --time must be well above them. After a node failure SLURM requeues the job by itself (--requeue); then it
# goes on from the newest checkpoint of checkpoint.interval. A run that fails is not requeued: its exit code is the
# job's. To stop and requeue a job by hand: scancel --batch --signal=USR1 JOBID.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# GPUs of this node: how many, or their numbers where SLURM says only these.
gpus=${SLURM_GPUS_ON_NODE:-${SLURM_JOB_GPUS:+numbers $SLURM_JOB_GPUS}}
[ "$gpus" != 0 ] || gpus=
ztrain=$root/build/cpu/ztrain
[ -z "$gpus" ] || [ ! -x "$root/build/cuda/ztrain" ] || ztrain=$root/build/cuda/ztrain
[ -x "$ztrain" ] || ztrain=$root/../../bin/ztrain  # as `cmake --install` lays it out
ztrain=${ZTRAIN:-$ztrain}
plugin=${ZTRAIN_MPI:-pmix}

die() {
  echo "slurm/launch.sh: $*" >&2
  exit 1
}

built_for_gpus() {
  case $("$ztrain" --version 2>&1 || true) in *"built for cuda") ;; *) return 1 ;; esac
}

# Cores of a rank: those that the job asks for; of GPU ranks else an even share of what the job has on this node, since
# a rank's communication and its watchdog run beside it.
cpus_per_rank() {
  local ranks=${SLURM_NTASKS_PER_NODE:-}
  [ -n "$ranks" ] || ranks=$(((${SLURM_NTASKS:-1} + ${SLURM_NNODES:-1} - 1) / ${SLURM_NNODES:-1}))
  if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
    echo "$SLURM_CPUS_PER_TASK"
  elif [ -n "$gpus" ] && [ "${SLURM_CPUS_ON_NODE:-0}" -gt "$ranks" ]; then
    echo $((SLURM_CPUS_ON_NODE / ranks))
  fi
}

[ $# -ge 1 ] || die "which deck? usage: launch.sh DECK [--section.key=value ...]"
deck=$1
shift
[ -n "${SLURM_JOB_ID:-}" ] || die "not inside a SLURM job: submit one of the scripts in slurm/ with sbatch"
[ -f "$deck" ] || die "$deck: no such deck (paths are relative to $PWD)"
[ -x "$ztrain" ] || die "$ztrain: no such executable; build it (cmake --build --preset cuda, or cpu) or set ZTRAIN"

if [ -n "$gpus" ] && [ "${ZTRAIN_ALLOW_CPU:-0}" != 1 ] && ! built_for_gpus; then
  die "this job has GPUs (on this node: $gpus) and $ztrain is not built for them: build it with --preset cuda, or set" \
    "ZTRAIN to one that is; ZTRAIN_ALLOW_CPU=1 runs on the CPU ranks and leaves the GPUs idle"
fi

if [ "$plugin" = mpirun ]; then
  # Takes the nodes and the number of ranks from the allocation. A rank with a GPU is not bound to a single core.
  start=(mpirun)
  [ -z "$gpus" ] || start+=(--bind-to none)
else
  # Without the plugin that the MPI library expects, MPI_Init fails or every task is a run of one rank of its own.
  plugins=$(srun --mpi=list 2>&1 || true)
  if ! grep -qw "$plugin" <<<"$plugins"; then
    die "this SLURM has no MPI plugin '$plugin'. It has: $(tr -s '\n\t ' ' ' <<<"$plugins")
Set ZTRAIN_MPI to the one that your MPI library supports, or to mpirun."
  fi
  # Every rank sees all GPUs of its node and takes the one of its place on the node, so none is bound here: GPUs that
  # see each other exchange data directly.
  start=(srun --mpi="$plugin" --kill-on-bad-exit=1 --cpu-bind=cores)
  # srun does not take it from the job. Neighbouring ranks have neighbouring cores, as neighbouring GPUs have.
  cpus=$(cpus_per_rank)
  [ -z "$cpus" ] || start+=(--cpus-per-task="$cpus" --distribution=block:block)
fi

# One thread per rank: ranks, not threads, fill the cores.
export OMP_NUM_THREADS=1

restarts=${SLURM_RESTART_COUNT:-0}
echo "ztrain job $SLURM_JOB_ID, start $((restarts + 1)): ${SLURM_NTASKS:-?} ranks on ${SLURM_NNODES:-?} nodes" \
  "(${SLURM_JOB_NODELIST:-?}), $(date -Is)"

# A deck that says otherwise would start anew after every requeue.
case " $* " in *" --checkpoint.resume"*) ;; *) set -- "$@" --checkpoint.resume=auto ;; esac

stopping=0
step=
stop() {
  stopping=1
  kill -USR1 "$step" || true
}
trap stop USR1
"${start[@]}" "$ztrain" "$deck" "$@" &
step=$!
# The signal interrupts a wait, so wait until the step is gone; then ask once more for its exit code.
while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
code=0
wait "$step" || code=$?

if [ "$code" != 0 ] || [ "$stopping" = 0 ]; then exit "$code"; fi
if [ "$restarts" -ge "${ZTRAIN_RESTARTS:-50}" ]; then
  die "state saved, but not requeued: the job has already been restarted $restarts times (ZTRAIN_RESTARTS)"
fi
echo "time limit near, state saved: requeueing job $SLURM_JOB_ID, $(date -Is)"
scontrol requeue "$SLURM_JOB_ID"
