#!/usr/bin/env bash
# Looks at the nodes of an allocation before a job trains on them: GPUs, memory, cores and NUMA nodes, disks, and the links between
# the nodes. A node that is sick or slow is named.
#
#   sbatch --nodes=16 --ntasks-per-node=8 --gpus-per-node=8 slurm/preflight.sh      by itself; the exit status is 1 where one is bad
#   ZTRAIN_PREFLIGHT=1 sbatch slurm/train_70b.sh ...                                before a job, which requeues itself without bad ones
#   slurm/preflight.sh FILE                                                         what launch.sh calls: their names into FILE, status 0
#
#   ZTRAIN_NVME               folder of each node's own drives, to be written to and read  (default: not looked at)
#   ZTRAIN_LEAST_MEMORY       GB that must be free on a node                               (default: 1)
#   ZTRAIN_LINK_MEBIBYTES     size of the all-reduces between nodes                        (default: 16)
#   ZTRAIN_LEAST_LINK         share of the usual bandwidth below which a node is slow      (default: 0.5)
#   ZTRAIN_ALLOW_TCP=1        data may go over TCP past Slingshot or InfiniBand              (default: that is a failure)
#   ZTRAIN_LEAST_DISK         MB/s of writing below which a disk is slow                   (default: 20)
#
# ZTRAIN, ZTRAIN_MPI and ZTRAIN_ALLOW_CPU are those of slurm/launch.sh. Nothing of the deck is read.
#SBATCH --job-name=ztrain-preflight
#SBATCH --time=00:15:00
#SBATCH --output=%x-%j.out
set -euo pipefail
# SLURM runs a copy of this file from its spool folder, so the checkout is found through the folder of submission.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -f "$root/slurm/ranks.sh" ] || root=${ZTRAIN_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
script=slurm/preflight.sh
# shellcheck source=slurm/ranks.sh
source "$root/slurm/ranks.sh"
[ -n "${SLURM_JOB_ID:-}" ] || die "not inside a SLURM job: submit it with sbatch"
check_executable
find_launcher
seconds=120  # for a node, and for a link
work=$(mktemp -d "$PWD/.preflight-$SLURM_JOB_ID-XXXXXX") || die "$PWD cannot be written"
trap 'rm -rf "$work"' EXIT
bad=$work/bad
: >"$bad"

# One process a node: what it says of itself, and last "well"; a node that does not come to that is sick.
date -Is >"$work/token"
srun --nodes="${SLURM_NNODES:-1}" --ntasks="${SLURM_NNODES:-1}" --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=0 \
  --mpi=none timeout "$seconds" "$root/slurm/preflight_node.sh" "$work" "${gpus:-0}" >"$work/nodes" 2>"$work/errors" || true
sort "$work/nodes" | grep -v ': well$' || true
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  grep -q "^$node: well$" "$work/nodes" && continue
  grep -q "^$node: sick: " "$work/nodes" || echo "$node: sick: it has not come to the end of its checks within $seconds s"
  echo "$node" >>"$bad"
done
[ ! -s "$bad" ] || cat "$work/errors" >&2

# With a node that is sick the others would wait for it.
if [ ! -s "$bad" ] && [ "${SLURM_NNODES:-1}" -gt 1 ]; then
  # Like a job's first step (slurm/launch.sh), this one gets another try where it could not start.
  links=("${start[@]}" "$ztrain" links --timeout "$seconds" --mebibytes "${ZTRAIN_LINK_MEBIBYTES:-16}" --slow "${ZTRAIN_LEAST_LINK:-0.5}")
  "${links[@]}" >"$work/links" 2>&1 || "${links[@]}" >"$work/links" 2>&1 || die "the links could not be measured:
$(cat "$work/links")"
  cat "$work/links"
  # Other nodes would not help, since all are alike in this. So a job ends here and is not requeued.
  if grep -q '^slow network ' "$work/links" && [ "${ZTRAIN_ALLOW_TCP:-0}" != 1 ]; then
    die "data go over TCP past a faster network (\"slow network\" above): set what is named there, or ZTRAIN_ALLOW_TCP=1"
  fi
  sed -n 's/^slow node \([^:]*\): .*/\1/p' "$work/links" >>"$bad"
fi

if [ $# -gt 0 ]; then
  cp "$bad" "$1"
elif [ -s "$bad" ]; then
  die "bad nodes: $(paste -sd, "$bad")"
fi
