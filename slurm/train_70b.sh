#!/usr/bin/env bash
# Llama 3 70B on 8 nodes of 8 GPUs, sharded over all 64 ranks.
#
#   export ZTRAIN_DATA=/path/to/tokens
#   build/cpu/ztrain plan inputs/llama3_70b.toml --ranks 64         first, on any machine: does it fit, what does it cost
#   sbatch slurm/train_70b.sh [DECK] [--section.key=value ...]      DECK: inputs/llama3_70b.toml
#
#   ZTRAIN_DATA        folder of the token files that the deck names
#   ZTRAIN             an executable built with the preset cuda          (default: build/cuda/ztrain)
#   ZTRAIN_ALLOW_CPU=1 start on CPU ranks, where a step takes hours (on nodes with room for 1.3 TB of states between
#                      them); on a cluster without GPUs also: sbatch --gpus-per-node=0
#
# Not yet run on a cluster of GPUs; docs/performance.md says what has run on which device.
#
# Submit from the root of the checkout; checkout, data and run.output must lie on a file system that all nodes share.
#SBATCH --job-name=ztrain-70b
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=48:00:00
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -euo pipefail
# SLURM runs a copy of this file from its spool folder, so the checkout is found through the folder of submission;
# submitting from elsewhere, or with an installed ztrain: ZTRAIN_ROOT=/opt/ztrain/share/ztrain sbatch ...
root=${ZTRAIN_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}

if [ "${ZTRAIN_ALLOW_CPU:-0}" != 1 ] && [ ! -x "${ZTRAIN:-$root/build/cuda/ztrain}" ]; then
  echo "slurm/train_70b.sh: ${ZTRAIN:-$root/build/cuda/ztrain}: no such executable; build it (cmake --preset cuda &&" \
    "cmake --build --preset cuda) or set ZTRAIN to one built for GPUs." >&2
  exit 1
fi
if [ -z "${ZTRAIN_DATA:-}" ]; then
  echo "slurm/train_70b.sh: set ZTRAIN_DATA to the folder of the token files" >&2
  exit 1
fi
exec "$root/slurm/launch.sh" --default "$root/inputs/llama3_70b.toml" "$@"
