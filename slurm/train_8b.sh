#!/usr/bin/env bash
# Fine-tunes Llama 3.1 8B, every weight of it, on one node of 8 GPUs.
#
#   export ZTRAIN_MODEL=/path/to/Llama-3.1-8B-Instruct ZTRAIN_DATA=/path/to/data     what the deck reads; its head says more
#   build/cpu/ztrain plan inputs/finetune_llama3_8b.toml --ranks 8  first, on any machine: does it fit, what does it cost
#   sbatch slurm/train_8b.sh [DECK] [--section.key=value ...]       DECK: inputs/finetune_llama3_8b.toml
#   sbatch --nodes=4 slurm/train_8b.sh                              on 32 GPUs: checkout, data and run.output on a shared file system
#
# Not yet run on a cluster of GPUs; docs/performance.md says what has run on which device. Submit from the root of the checkout.
#SBATCH --job-name=ztrain-8b
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
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
exec "$root/slurm/launch.sh" --default "$root/inputs/finetune_llama3_8b.toml" "$@"
