#!/usr/bin/env bash
# Several nodes.
#
#   sbatch slurm/train_multi_node.sh [DECK] [--section.key=value ...]
#   sbatch --nodes=16 --ntasks-per-node=32 slurm/train_multi_node.sh my.toml
#
# Submit from the root of the checkout; checkout, data and run.output must lie on a file system that all nodes share.
# The log is <job name>-<job id>.out in the folder you submit from.
#
# One rank per GPU: set --ntasks-per-node to the GPUs of a node and remove one '#' from the gpus line; build/cuda/ztrain
# runs. Without GPUs one rank per core: set it to the cores of a node.
#
# FULL_SHARD shards the states over all ranks of the job. HYBRID_SHARD shards them within a node and keeps a copy on
# each, which spares the network where a copy fits a node:
#   sbatch slurm/train_multi_node.sh DECK --sharding.strategy=HYBRID_SHARD
#SBATCH --job-name=ztrain-nodes
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
##SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -euo pipefail
# SLURM runs a copy of this file from its spool folder, so the checkout is found through the folder of submission;
# submitting from elsewhere, or with an installed ztrain: ZTRAIN_ROOT=/opt/ztrain/share/ztrain sbatch ...
root=${ZTRAIN_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}

if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
  deck=$1
  shift
else
  # A batch that the ranks asked for above divide; what the command line says comes later and wins.
  deck=$root/inputs/quickstart.toml
  set -- --batch.global=64 --batch.micro=2 "$@"
fi
exec "$root/slurm/launch.sh" "$deck" "$@"
