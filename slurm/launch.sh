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
# it on to the ranks: they finish their step, save a checkpoint and end with status 75. Then the job requeues itself, and
# the next start goes on from that checkpoint (checkpoint.resume = "auto"). The 300 seconds must hold one step and one
# save, and the job's --time must be well above them. SIGTERM, with which SLURM preempts and cancels jobs, has the ranks do
# the same within its KillWait or GraceTime; whether such a job is started again is for SLURM to say (PreemptMode). After a node failure SLURM requeues the job by itself (--requeue); then it
# goes on from the newest checkpoint of checkpoint.interval. A run that fails is not requeued: its exit code is the
# job's. To stop and requeue a job by hand: scancel --batch --signal=USR1 JOBID.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=slurm/launch.sh
# shellcheck source=slurm/ranks.sh
source "$root/slurm/ranks.sh"

[ $# -ge 1 ] || die "which deck? usage: launch.sh DECK [--section.key=value ...]"
deck=$1
shift
[ -n "${SLURM_JOB_ID:-}" ] || die "not inside a SLURM job: submit one of the scripts in slurm/ with sbatch"
[ -f "$deck" ] || die "$deck: no such deck (paths are relative to $PWD)"
check_executable
find_launcher

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
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# Trains; gives `code`. What is said on stderr is in the file $said too, by a process that signals to the job do not end.
train() {
  local copies
  exec {errors}> >(trap '' USR1 USR2 TERM INT && exec tee "$said" >&2)
  copies=$!
  "${start[@]}" "$ztrain" "$deck" "$@" 2>&"$errors" &
  step=$!
  exec {errors}>&-
  # The signal interrupts a wait, so wait until the step is gone; then ask once more for its exit code.
  while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
  code=0
  wait "$step" || code=$?
  wait "$copies" || true
}

# A node that died and came back may still hold a socket of an earlier start, and refuses the step that has the same number.
# The next one has another.
for ((tries = restarts + 3; tries > 0; tries--)); do
  train "$@"
  if [ "$code" = 0 ] || [ "$stopping" = 1 ] || ! grep -q "launch failed" "$said"; then break; fi
  echo "$script: a node refused to launch the step; up to $((tries - 1)) more tries"
done

# srun says 137 instead where it ended ranks that took longer to exit than others.
saved=75
if [ "$code" != "$saved" ] && { [ "$code" = 0 ] || ! grep -q "exit status $saved" "$said"; }; then exit "$code"; fi
if [ "$stopping" = 0 ]; then exit "$saved"; fi
if [ "$restarts" -ge "${ZTRAIN_RESTARTS:-50}" ]; then
  die "state saved, but not requeued: the job has already been restarted $restarts times (ZTRAIN_RESTARTS)"
fi
echo "time limit near, state saved: requeueing job $SLURM_JOB_ID, $(date -Is)"
scontrol requeue "$SLURM_JOB_ID"
