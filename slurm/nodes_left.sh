# shellcheck shell=bash
# Sourced by launch.sh: which nodes of the job still answer, and how training starts again on these. Expects `script`, `root`, `job`, `ztrain`,
# `requeue`, `start`, `whole_start` (`start` of the whole job) and `answers`, a file for what tasks say.

# Of the job as it began, and as it is: where nodes fail it has fewer of them.
all_nodes=${SLURM_NNODES:-1}
guard=
nodes_now=$all_nodes
used=  # names of the nodes that training is on, one a line; none: all of the job
per_node=${SLURM_NTASKS_PER_NODE:-$(((${SLURM_NTASKS:-1} + all_nodes - 1) / all_nodes))}
per_node=${per_node%%(*}
least_nodes=${ZTRAIN_MIN_NODES:-$(((all_nodes + 1) / 2))}

# What starts a task on a node of the job, beside whatever is there: with --nodelist=NODE and a command behind it.
one_task=(srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=1)

# Which of these nodes, one a line, start a task when they are asked.
answering() {
  xargs -r -P 32 -I '{}' timeout 30 "${one_task[@]}" --nodelist='{}' --mpi=none echo '{}' <<<"$1" >"$answers" || true
  grep -Fxf "$answers" <<<"$1" || true
}

# Those that SLURM still counts as the job's, and that answer: it may take SLURM minutes to see that one is gone. One a line, in SLURM's
# order. A node that has just come back, or is busy, may refuse once: it is asked again before it is given up.
nodes_left() {
  local own first silent
  own=$(squeue --noheader --jobs="$job" --format=%N 2>/dev/null) || return 0
  [ -n "$own" ] || return 0
  own=$(scontrol show hostnames "$own") || return 0
  first=$(answering "$own" 2>/dev/null)
  silent=$(grep -Fxv "$first" <<<"$own") || { echo "$own"; return; }
  sleep 2
  grep -Fx "$first"$'\n'"$(answering "$silent")" <<<"$own" || true
}

# The script's own node may fail too: on the last of the others a guard looks for that until the job ends. Sets `guard`, a process of
# this node, where none is there yet.
start_guard() {
  local own=${SLURMD_NODENAME:-$(hostname -s)} seconds=${ZTRAIN_GUARD:-30} others
  if [ "${start[0]}" != srun ] || [ "$seconds" = 0 ] || [ "$nodes_now" = 1 ]; then return; fi
  if [ -n "$guard" ] && kill -0 "$guard" 2>/dev/null; then return; fi
  others=$(squeue --noheader --jobs="$job" --format=%N 2>/dev/null) || return 0
  others=$(scontrol show hostnames "$others" | grep -Fxv "$own") || return 0
  [ -n "$others" ] || return 0
  "${one_task[@]}" --nodelist="$(tail -n 1 <<<"$others")" --mpi=none "$root/slurm/guard.sh" "$job" "$own" "$seconds" </dev/null >/dev/null 2>&1 &
  guard=$!
}

# start_on_fewer DECK [--section.key=value ...], behind a start that has failed: 0 where nodes are gone and `start` now names those
# that are left, with as many ranks as the deck's mesh takes; 1 where all answer. Where too few are left the job waits for others.
start_on_fewer() {
  local left count ranks most ask
  [ "$nodes_now" -gt 1 ] || return 1
  mapfile -t left < <(nodes_left)
  count=${#left[@]}
  # None, not even this one: that says nothing of the nodes.
  [ "$count" != 0 ] || return 1
  # Those that training is on may be fewer than the job has.
  if [ -z "$used" ]; then [ "$count" -lt "$nodes_now" ] || return 1
  elif ! grep -Fxvq "$(printf '%s\n' "${left[@]}")" <<<"$used"; then return 1; fi
  echo "$script: $count of the job's nodes answer (${left[*]}), and training was on $nodes_now, $(date -Is)"
  [ "${start[0]}" = srun ] || requeue "nodes have failed, and mpirun does not go on without them"
  [ "$count" -ge "$least_nodes" ] || requeue "too few nodes are left: ZTRAIN_MIN_NODES = $least_nodes"
  most=$((count * per_node))
  ask=("${one_task[@]}" --nodelist="${left[0]}" "${start[1]}" "$ztrain" ranks "$@" --most "$most" --per-node "$per_node")
  # Like any step, this one may be refused once.
  if ! ranks=$("${ask[@]}" </dev/null 2>/dev/null || "${ask[@]}" </dev/null 2>"$answers"); then
    cat "$answers" >&2
    requeue "the deck's mesh takes none of the $most ranks that are left"
  fi
  nodes_now=$(((ranks + per_node - 1) / per_node))
  [ "$nodes_now" -ge "$least_nodes" ] || requeue "the deck's mesh takes $nodes_now of the nodes: ZTRAIN_MIN_NODES = $least_nodes"
  left=("${left[@]:0:nodes_now}")
  used=$(printf '%s\n' "${left[@]}")
  start=("${whole_start[@]}" --nodes="$nodes_now" --ntasks="$ranks" --ntasks-per-node="$per_node" --nodelist="$(IFS=, && echo "${left[*]}")")
  echo "$script: training goes on with $ranks ranks on ${left[*]}"
}
