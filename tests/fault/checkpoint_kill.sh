#!/bin/bash
# Kills a job of two ranks with SIGKILL at random moments, nearly always inside a save, and checks each time that every
# checkpoint in the folder is whole and that none went back.
#   checkpoint_kill.sh PROGRAM ROUNDS mpirun...
set -u
program=$1 rounds=$2
shift 2
folder=$(mktemp -d "${TMPDIR:-/tmp}/ztrain-kill-XXXXXX")
trap 'rm -rf "$folder"' EXIT
before=0 unfinished=0
for ((round = 0; round < rounds; ++round)); do
  rm -f "$folder/pids"
  "$@" -np 2 "$program" save "$folder" >/dev/null 2>"$folder/errors" &
  job=$!
  for ((wait = 0; wait < 600; ++wait)); do
    [[ -s $folder/pids ]] && break
    kill -0 $job 2>/dev/null || break
    sleep 0.05
  done
  [[ -s $folder/pids ]] || { echo "round $round: the job did not start"; cat "$folder/errors"; exit 1; }
  delay=0.$(printf %03d $((RANDOM % 1000)))
  sleep "$delay"
  victim=$(sed -n $((round % 2 + 1))p "$folder/pids")
  kill -9 "$victim" || { echo "round $round: the job ended by itself"; cat "$folder/errors"; exit 1; }
  wait $job
  compgen -G "$folder/step_*.tmp" >/dev/null && unfinished=$((unfinished + 1))
  after=$("$program" check "$folder") || { echo "round $round, killed after $delay s: a checkpoint is damaged"; exit 1; }
  echo "round $round: killed rank $((round % 2)) after $delay s; newest step $before -> $after"
  ((after >= before)) || { echo "round $round: the newest checkpoint went back"; exit 1; }
  before=$after
done
((before > 0)) || { echo "no save was ever complete: nothing was tested"; exit 1; }
((unfinished > 0)) || { echo "no kill hit a save: nothing was tested"; exit 1; }
echo "$unfinished of $rounds kills hit a save; the newest step is $before"
