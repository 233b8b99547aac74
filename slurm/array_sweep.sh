#!/usr/bin/env bash
# One deck under many settings: each task of a job array trains with one combination of the values given, on a node of its own.
#
#   sbatch --array=0-5 slurm/array_sweep.sh DECK optimizer.lr=1e-4,3e-4,1e-3 batch.global=32,64 [--section.key=value ...]
#   sbatch --array=0-5%2 ...                                        two at a time
#
# KEY=VALUE,VALUE,... is varied, the last key fastest; a value that is a list has brackets: optimizer.betas=[0.9,0.95],[0.9,0.99]. Words with
# -- are the same for all. Task N has the N-th combination, and its run, with its checkpoints and the model that it exports where the deck
# has checkpoint.export, is in runs/<job name>-<array's id>/KEY=VALUE,KEY=VALUE, where a / of a value is %2F and a % is %25; a task that is
# requeued goes on there. All runs want the same --nodes, --ntasks-per-node and --gpus-per-node, as of the other scripts. Submit from the root of the checkout.
#SBATCH --job-name=ztrain-sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A_%a.out
set -euo pipefail
# SLURM runs a copy of this file from its spool folder, so the checkout is found through the folder of submission.
root=${ZTRAIN_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}

die() {
  echo "slurm/array_sweep.sh: $*" >&2
  exit 1
}
[ $# -ge 2 ] || die "usage: sbatch --array=0-N slurm/array_sweep.sh DECK KEY=VALUE,VALUE ... [--section.key=value ...]"
deck=$1
shift
[ -f "$deck" ] || die "$deck: no such deck (paths are relative to $PWD)"

# Gives `values`, those of VALUE,VALUE,...: a comma between brackets is a list's own.
values_of() {
  local text=$1 depth=0 value='' i
  values=()
  for ((i = 0; i < ${#text}; i++)); do
    case ${text:i:1} in
      '[') depth=$((depth + 1)) ;;
      ']') depth=$((depth - 1)) ;;
      ,) if [ "$depth" = 0 ]; then values+=("$value") value=''; continue; fi ;;
    esac
    value+=${text:i:1}
  done
  values+=("$value")
}

fixed=() swept=() count=1
for word in "$@"; do
  case $word in
    run.output=* | checkpoint.folder=* | checkpoint.export=* | --run.output=* | --checkpoint.folder=* | --checkpoint.export=*)
      die "'$word' says where runs lie: each task has its own folder below runs/, by what is varied"
      ;;
    --*) fixed+=("$word") ;;
    ?*.?*=?*)
      swept+=("$word")
      values_of "${word#*=}"
      count=$((count * ${#values[@]}))
      ;;
    *) die "'$word' is neither KEY=VALUE,VALUE,... to be varied nor --section.key=value" ;;
  esac
done
[ ${#swept[@]} -gt 0 ] || die "which keys are to be varied? KEY=VALUE,VALUE,..."
[ -n "${SLURM_ARRAY_TASK_ID:-}" ] || die "there are $count combinations, and this is no job array: sbatch --array=0-$((count - 1))"
[ "$SLURM_ARRAY_TASK_ID" -lt "$count" ] ||
  die "there are $count combinations, and none for task $SLURM_ARRAY_TASK_ID: sbatch --array=0-$((count - 1))"

# The digits of the task's number, the last key's first.
name='' chosen=() rest=$SLURM_ARRAY_TASK_ID
for ((i = ${#swept[@]} - 1; i >= 0; i--)); do
  key=${swept[i]%%=*}
  values_of "${swept[i]#*=}"
  value=${values[rest % ${#values[@]}]}
  rest=$((rest / ${#values[@]}))
  chosen=("--$key=$value" "${chosen[@]}")
  value=${value//%/%25} # the name is that of one folder
  name=$key=${value//\//%2F}${name:+,$name}
done
[ "$SLURM_ARRAY_TASK_ID" != "${SLURM_ARRAY_TASK_MIN:-}" ] || [ "${SLURM_ARRAY_TASK_COUNT:-$count}" -ge "$count" ] ||
  echo "slurm/array_sweep.sh: of $count combinations this array has $SLURM_ARRAY_TASK_COUNT"
output=runs/${SLURM_JOB_NAME:-ztrain-sweep}-$SLURM_ARRAY_JOB_ID/$name
own=(--run.output="$output" --checkpoint.folder="$output/checkpoints")
if grep -qE "^[[:space:]]*(checkpoint\.)?export[[:space:]]*=[[:space:]]*(\"[^\"]|'[^'])" "$deck"; then own+=(--checkpoint.export="$output/model"); fi
exec "$root/slurm/launch.sh" "$deck" "${fixed[@]}" "${chosen[@]}" "${own[@]}"
