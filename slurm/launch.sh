#!/usr/bin/env bash
# Starts ztrain inside a SLURM allocation; the sbatch scripts beside this file end in it.
#   slurm/launch.sh DECK [--section.key=value ...]
#   slurm/launch.sh --default DECK [ANOTHER] [--section.key=value ...]     DECK where the words behind it name no other
#
# Environment
#   ZTRAIN              the executable   (default: build/cuda/ztrain in a job with GPUs, else build/cpu/ztrain; or the installed)
#   ZTRAIN_ALLOW_CPU=1  run on the CPU ranks of a job with GPUs, where the executable is not built for these
#   ZTRAIN_MPI          srun's MPI plugin, or "mpirun" to start with mpirun   (default: pmix)
#   ZTRAIN_RESTARTS     how often a job may requeue itself                    (default: 50)
#   ZTRAIN_LOGS         folder of the ranks' logs   (default: <job name>-<job id>.ranks in the folder of submission)
#   ZTRAIN_PREFLIGHT=1  look at the nodes first (slurm/preflight.sh); a job with bad ones requeues itself without them
#
# Ahead of the time limit (run.end_margin) the ranks save a checkpoint by themselves and end with status 75; SIGTERM, with
# which SLURM preempts jobs, and SIGUSR1 have them do the same. Then the job requeues itself, and the next start goes on from
# that checkpoint (checkpoint.resume = "auto"). A job that is cancelled saves as well (within KillWait), and is not requeued.
# After a node failure SLURM requeues the job (--requeue), which goes on from the newest checkpoint of checkpoint.interval. A
# run that fails is not requeued, but where an audit names the nodes to leave out (watchdog.audit_limit): its exit code is the
# job's. To stop and requeue a job by hand:
# scancel --batch --signal=USR1 JOBID.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=slurm/launch.sh
# shellcheck source=slurm/ranks.sh
source "$root/slurm/ranks.sh"
# shellcheck source=slurm/requeue.sh
source "$root/slurm/requeue.sh"

if [ "${1:-}" = --default ]; then
  case ${3:---} in --*) shift ;; *) shift 2 ;; esac
fi
[ $# -ge 1 ] || die "which deck? usage: launch.sh DECK [--section.key=value ...]"
deck=$1
shift
[ -n "${SLURM_JOB_ID:-}" ] || die "not inside a SLURM job: submit one of the scripts in slurm/ with sbatch"
[ -f "$deck" ] || die "$deck: no such deck (paths are relative to $PWD)"
check_executable
find_launcher
logs=${ZTRAIN_LOGS:-$PWD/${SLURM_JOB_NAME:-ztrain}-$SLURM_JOB_ID.ranks}
mkdir -p "$logs" || die "$logs: the folder of the ranks' logs cannot be made; set ZTRAIN_LOGS to one that all nodes share"

restarts=${SLURM_RESTART_COUNT:-0}
find_end_of_job
echo "ztrain job $SLURM_JOB_ID, start $((restarts + 1)): ${SLURM_NTASKS:-?} ranks on ${SLURM_NNODES:-?} nodes" \
  "(${SLURM_JOB_NODELIST:-?}), $(date -Is)${SLURM_JOB_END_TIME:+, ends $(date -Is -d "@$SLURM_JOB_END_TIME")}"

if [ "${ZTRAIN_PREFLIGHT:-0}" = 1 ]; then
  bad=$logs/bad_nodes
  "$root/slurm/preflight.sh" "$bad" || die "the nodes could not be looked at"
  if [ -s "$bad" ]; then requeue "nodes are bad: $(paste -sd, "$bad")" "$(paste -sd, "$bad")"; fi
fi

# A deck that says otherwise would start anew after every requeue.
case " $* " in *" --checkpoint.resume"*) ;; *) set -- "$@" --checkpoint.resume=auto ;; esac

stopping=0
step=
stop() {
  stopping=1
  kill -USR1 "$step" || true
}
trap stop USR1
trap : TERM  # SLURM tells the ranks, which save; their end is waited for
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# Trains; gives `code`. What is said on stderr is in the file $said too, by a process that signals to the job do not end.
train() {
  local copies
  exec {errors}> >(trap '' USR1 USR2 TERM INT && exec tee "$said" >&2)
  copies=$!
  "${start[@]}" "$root/slurm/rank.sh" "$logs" "$ztrain" "$deck" "$@" 2>&"$errors" &
  step=$!
  exec {errors}>&-
  # The signal interrupts a wait, so wait until the step is gone; then ask once more for its exit code.
  while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
  code=0
  wait "$step" || code=$?
  wait "$copies" || true
}

# A node that died and came back may still hold a socket of an earlier start, and refuses the step that has the same number.
# The next one has another. A rank that crashes (SIGSEGV, SIGBUS) is tried once more, from the newest checkpoint: MPI itself was
# seen to while it started on nodes that were left of an earlier start, and memory may be bad.
crashes=0
for ((tries = restarts + 3; tries > 0; tries--)); do
  train "$@"
  if [ "$code" = 0 ] || [ "$stopping" = 1 ]; then break; fi
  if grep -q "launch failed" "$said"; then
    echo "$script: a node refused to launch the step; up to $((tries - 1)) more tries"
  elif [ "$crashes" = 0 ] && { [ "$code" = 139 ] || [ "$code" = 135 ] || grep -qE "Segmentation fault|Bus error" "$said"; }; then
    crashes=1
    echo "$script: a rank has crashed; one more try"
  else
    break
  fi
done

# An audit that has found corruption again and again ends the run, and names the nodes that were wrong where it knows them.
nodes=$(sed -n 's/.*(watchdog\.audit_limit), and ends; nodes to leave out: \([^ ;]*\);.*/\1/p' "$said" | tail -n 1)
if [ "$code" != 0 ] && [ -n "$nodes" ] && [ "$stopping" = 0 ] && [ "$(state_of_job)" = RUNNING ]; then
  requeue "silent corruption on $nodes" "$nodes"
fi

# srun says 137 instead where it ended ranks that took longer to exit than others.
saved=75
if [ "$code" != "$saved" ] && { [ "$code" = 0 ] || ! grep -q "exit status $saved" "$said"; }; then exit "$code"; fi
# Whether a job that SLURM takes from its nodes comes back is for SLURM to say.
if [ "$stopping" = 0 ] && [ "$(state_of_job)" != RUNNING ]; then exit "$saved"; fi
requeue "state saved"
