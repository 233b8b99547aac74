# shellcheck shell=bash
# Sourced by launch.sh: what SLURM knows of the job, and how the job is started again. Expects `script`, `die` and `restarts`, how often
# it has been already.

# In SLURM one task of every job array has the number of the array, which stands for all of its tasks: a task is ARRAY_TASK.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-${SLURM_JOB_ID:-}}

state_of_job() {
  squeue --noheader --jobs="$job" --format=%T 2>/dev/null || true
}

# SLURM 23 and later give ranks the end of the allocation; the others tell those who ask, of a job with a limit.
find_end_of_job() {
  local text
  text=$(squeue --noheader --jobs="$job" --format=%e 2>/dev/null || true)
  case $text in [0-9]*) SLURM_JOB_END_TIME=$(date -d "$text" +%s 2>/dev/null) || unset SLURM_JOB_END_TIME ;; esac
  [ -z "${SLURM_JOB_END_TIME:-}" ] || export SLURM_JOB_END_TIME
}

# requeue WHY [NODES]: the job waits for nodes again, which will not be NODES, separated by commas. Ends the script.
requeue() {
  local nodes=${2:-} before
  if [ "$restarts" -ge "${ZTRAIN_RESTARTS:-50}" ]; then
    die "$1, but not requeued: the job has already been restarted $restarts times (ZTRAIN_RESTARTS)"
  fi
  echo "$1: requeueing job $job, $(date -Is)"
  before=$(squeue --noheader --jobs="$job" --format=%x 2>/dev/null | tr -d '() ' || true)
  case $before in "" | null) ;; *) nodes=${nodes:+$nodes,}${nodes:+$before} ;; esac
  # SLURM sends SIGTERM with it, and leaves the script KillWait to say which nodes are to be left out: of a job that runs it
  # does not take that.
  trap '' TERM
  scontrol requeue "$job" || die "$1, but SLURM does not requeue job $job (was it submitted with --no-requeue?)"
  [ -n "$nodes" ] || exit 0
  for ((tries = 20; tries > 0; tries--)); do
    if scontrol update JobId="$job" ExcNodeList="$nodes" 2>/dev/null; then exit 0; fi
    sleep 0.2
  done
  die "job $job is requeued, but may come to the same nodes ($nodes): scontrol update ExcNodeList failed"
}
