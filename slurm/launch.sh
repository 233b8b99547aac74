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
#   ZTRAIN_MIN_NODES    how few nodes the job goes on with where others fail  (default: half of them; as many as it has: all or none)
#   ZTRAIN_FAILURES     how often in a row ranks may crash or be killed within ten minutes of a start  (default: 1)
#   ZTRAIN_GUARD        seconds between looks at whether this script's node is still there; 0: none  (default: 30)
#   ZTRAIN_SITE         the cluster's profile (slurm/sites): variables of its network, and how ranks start in a container
#   ZTRAIN_PREFLIGHT=1  look at the nodes first (slurm/preflight.sh); a job with bad ones requeues itself without them
#
# Ahead of the time limit (run.end_margin) the ranks save a checkpoint by themselves and end with status 75; SIGTERM, with
# which SLURM preempts jobs, and SIGUSR1 have them do the same. Then the job requeues itself, and the next start goes on from
# that checkpoint (checkpoint.resume = "auto"). A job that is cancelled saves as well (within KillWait), and is not requeued.
# Where a node fails that is not this script's, a job with --no-kill goes on at once on those that are left, from the newest
# checkpoint: with as many ranks as the deck's mesh takes. Otherwise, and where too few are left, the job is requeued (--requeue), by
# SLURM, by this script, or where its own node has failed by a guard on another (slurm/guard.sh).
# Where a rank crashes or is killed, all are started again. A run that fails is not requeued, but where an audit names the nodes to
# leave out (watchdog.audit_limit): its exit code is the job's. To stop and requeue a job by hand:
# scancel --batch --signal=USR1 JOBID. A run that a file `stop` in its folder has ended is not requeued.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=slurm/launch.sh
# shellcheck source=slurm/sites.sh
source "$root/slurm/sites.sh"
read_site
enter_site
# shellcheck source=slurm/ranks.sh
source "$root/slurm/ranks.sh"
# shellcheck source=slurm/requeue.sh
source "$root/slurm/requeue.sh"
# shellcheck source=slurm/nodes_left.sh
source "$root/slurm/nodes_left.sh"

if [ "${1:-}" = --default ]; then
  case ${3:---} in --*) shift ;; *) shift 2 ;; esac
fi
[ $# -ge 1 ] || die "which deck? usage: launch.sh DECK [--section.key=value ...]"
deck=$1
shift
[ -n "${SLURM_JOB_ID:-}" ] || die "not inside a SLURM job: submit one of the scripts in slurm/ with sbatch"
[ -f "$deck" ] || die "$deck: no such deck (paths are relative to $PWD)"
# This script cannot look at an executable in a container.
[ ${#site_launch[@]} -gt 0 ] || check_executable
find_launcher
if [ ${#site_launch[@]} -gt 0 ]; then
  [ "${start[0]}" = srun ] || die "mpirun does not enter the container of ZTRAIN_SITE=$ZTRAIN_SITE: leave ZTRAIN_MPI out"
  start+=("${site_launch[@]}")
fi
whole_start=("${start[@]}")
logs=${ZTRAIN_LOGS:-$PWD/${SLURM_JOB_NAME:-ztrain}-$SLURM_JOB_ID.ranks}
mkdir -p "$logs" || die "$logs: the folder of the ranks' logs cannot be made; set ZTRAIN_LOGS to one that all nodes share"

restarts=${SLURM_RESTART_COUNT:-0}
find_end_of_job
echo "ztrain job $SLURM_JOB_ID, start $((restarts + 1)): ${SLURM_NTASKS:-?} ranks on ${SLURM_NNODES:-?} nodes" \
  "(${SLURM_JOB_NODELIST:-?}), $(date -Is)${SLURM_JOB_END_TIME:+, ends $(date -Is -d "@$SLURM_JOB_END_TIME")}"

if [ "${ZTRAIN_PREFLIGHT:-0}" = 1 ]; then
  bad=$logs/bad_nodes
  "$root/slurm/preflight.sh" "$bad" || die "the look at the nodes has failed"
  if [ -s "$bad" ]; then requeue "nodes are bad: $(paste -sd, "$bad")" "$(paste -sd, "$bad")"; fi
fi

# A deck that says otherwise would start anew after every requeue.
case " $* " in *" --checkpoint.resume"*) ;; *) set -- "$@" --checkpoint.resume=auto ;; esac

stopping=0
step=
stop() {
  stopping=1
  [ -z "$step" ] || kill -USR1 "$step" || true
}
trap stop USR1
trap : TERM  # SLURM tells the ranks, which save; their end is waited for
said=$(mktemp)
answers=$(mktemp)
trap 'rm -f "$said" "$answers"' EXIT

# How often rank 0 has begun, as its log says (slurm/rank.sh).
times_begun() {
  grep -cs "^start .*, rank 0 on " "$logs/0.log" || true
}

# Trains; gives `code`. What is said on stderr is in the file $said too, by a process that signals to the job do not end.
train() {
  local copies begun
  begun=$(times_begun)
  exec {errors}> >(trap '' USR1 USR2 TERM INT && exec tee "$said" >&2)
  copies=$!
  "${start[@]}" "$root/slurm/rank.sh" "$logs" "$ztrain" "$deck" "$@" 2>&"$errors" &
  step=$!
  [ "$stopping" = 0 ] || kill -USR1 "$step" || true  # asked while there was none
  exec {errors}>&-
  # The signal interrupts a wait, so wait until the step is gone; then ask once more for its exit code.
  while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
  code=0
  wait "$step" || code=$?
  wait "$copies" || true
  step=
  # srun ends with 0 where a node fails while the step is being launched, before any task is.
  if [ "$code" = 0 ] && [ "$(times_begun)" = "$begun" ]; then
    echo "$script: launch failed: ${start[0]} has ended, and rank 0 never began" | tee -a "$said" >&2
    code=1
  fi
}

# Whether a rank ended by itself or was killed: what the launcher says of the first that ended, else the exit code. (srun's code
# says 137 of a run that failed, too, where it had to end the other ranks.)
rank_has_crashed() {
  local first
  first=$(grep -m 1 -E "tasks? [0-9,-]+: |exited on signal" "$said" || true)
  case $first in
    *Killed* | *"Out Of Memory"* | *"Segmentation fault"* | *"Bus error"* | *Aborted* | *"Broken pipe"*) ;;
    "") case $code in 134 | 135 | 137 | 139 | 141) ;; *) return 1 ;; esac ;;
    *) return 1 ;;
  esac
}

# A state is saved, and the same command goes on from it. srun says 137 instead where it ended ranks that took longer to exit.
saved=75
is_saved() {
  [ "$code" = "$saved" ] || { [ "$code" != 0 ] && grep -q "exit status $saved" "$said"; }
}

# A node that died and came back may still hold a socket of an earlier start, and refuses the step that has the same number.
# The next one has another. Ranks that crash or are killed are started again, from the newest checkpoint: MPI itself was seen to
# crash while it started on nodes that were left of an earlier start, memory may be bad, and systems short of it kill.
failures=0
refusals=$((restarts + 2))
for ((tries = 1; ; tries++)); do
  export ZTRAIN_TRY=$tries
  began=$SECONDS
  start_guard
  train "$@"
  if [ "$code" = 0 ] || [ "$stopping" = 1 ] || is_saved; then break; fi
  case $(state_of_job) in RUNNING | "") ;; *) break ;; esac
  [ $((SECONDS - began)) -lt 600 ] || failures=0
  if start_on_fewer "$deck" "$@"; then
    continue
  elif grep -q "launch failed" "$said"; then
    [ "$refusals" -gt 0 ] || break
    echo "$script: a node refused to launch the step; up to $refusals more tries"
    refusals=$((refusals - 1))
  elif rank_has_crashed && [ "$failures" -lt "${ZTRAIN_FAILURES:-1}" ]; then
    failures=$((failures + 1))
    echo "$script: a rank has crashed or was killed; all are started again"
  elif grep -q "the job does not fit" "$said" && [ "$nodes_now" -lt "$all_nodes" ]; then
    requeue "the job does not fit $nodes_now of its $all_nodes nodes"
  else
    break
  fi
  if [ "$stopping" = 1 ]; then requeue "asked to stop between two starts"; fi
done

# An audit that has found corruption again and again ends the run, and names the nodes that were wrong where it knows them.
nodes=$(sed -n 's/.*(watchdog\.audit_limit), and ends; nodes to leave out: \([^ ;]*\);.*/\1/p' "$said" | tail -n 1)
if [ "$code" != 0 ] && [ -n "$nodes" ] && [ "$stopping" = 0 ] && [ "$(state_of_job)" = RUNNING ]; then
  requeue "silent corruption on $nodes" "$nodes"
fi

is_saved || exit "$code"
# Somebody has made a file `stop` in the run's folder (src/train/run_end.cpp).
if grep -q "/stop of .* is taken: the run saves and ends" "$said"; then
  echo "$script: the run was asked to end by a file, and job $job is not requeued"
  exit "$saved"
fi
# Whether a job that SLURM takes from its nodes comes back is for SLURM to say.
if [ "$stopping" = 0 ] && [ "$(state_of_job)" != RUNNING ]; then exit "$saved"; fi
requeue "state saved"
