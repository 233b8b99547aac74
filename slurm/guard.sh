#!/usr/bin/env bash
# Beside a job's training, on another node than that of its script: guard.sh JOB NODE SECONDS requeues the job where NODE, which has the
# script, has failed. With --no-kill SLURM takes such a node from the job and leaves the others to nobody, until the job's time is over.
set -uo pipefail
job=$1 node=$2 seconds=$3

# What ends ranks with a checkpoint comes to this process too, which goes when the job does: a signal only lets it look at once.
trap : TERM USR1 USR2
refused=0
while true; do
  sleep "$seconds" &
  wait $! || true
  read -r state nodes < <(squeue --noheader --jobs="$job" --format="%T %N") || continue
  [ "$state" = RUNNING ] || exit 0
  nodes=$(scontrol show hostnames "$nodes") || continue
  if [ -n "$nodes" ] && ! grep -Fxq "$node" <<<"$nodes"; then
    # A job that may not be requeued would be left with nobody; a controller that is busy is asked again.
    scontrol requeue "$job" || { [ $((refused += 1)) -lt 3 ] || scancel "$job"; }
  fi
done
