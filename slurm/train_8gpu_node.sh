#!/usr/bin/env bash
# One node of eight GPUs, a rank for each, with build/cuda/ztrain.
#
#   sbatch slurm/train_8gpu_node.sh [DECK] [--section.key=value ...]
#   sbatch --gpus-per-node=0 slurm/train_8gpu_node.sh ...            on eight cores of a node without GPUs
#
# Submit from the root of the checkout; DECK is inputs/quickstart.toml when it is not given. The log is
# <job name>-<job id>.out in the folder you submit from; metrics and checkpoints go to the deck's run.output.
#SBATCH --job-name=ztrain-node
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --exclusive
#SBATCH --requeue
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
