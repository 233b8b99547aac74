#!/usr/bin/env bash
# Whether ztrain computes the same on every mesh of this allocation: a small deck on each mesh (replicate x shard x context x
# tensor) that its ranks allow, under every strategy, in fp32, bf16 and fp8, held against the losses of one rank; then the
# tests of tests/mpi and tests/regress that run on several ranks.
#
#   sbatch slurm/regression.sh [OPTION ...]                                     4 ranks on one node
#   sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 slurm/regression.sh  any number of ranks; powers of 2 have the most meshes
#   slurm/regression.sh --ranks 4 [OPTION ...]                                  without SLURM: mpirun on this machine
#
#   --only SUITES        some of meshes,mpi,regress            --axes NAMES         meshes over some axes, such as shard,tensor
#   --out FOLDER         for logs, table.txt and junit.xml     --strategies NAMES   some of the strategies, such as FULL_SHARD
#   --timeout SECONDS    of a run on a mesh (120)              --precisions NAMES   some of fp32,bf16,fp8
#
# Each run is told as it begins and ends; the table comes last. The exit status is 0 where all that ran passed, 1 where
# something failed, 2 for mistakes in the options. ZTRAIN, ZTRAIN_MPI and ZTRAIN_ALLOW_CPU are those of slurm/launch.sh.
# Submit from the root of a checkout that all nodes share, with build/cuda or build/cpu in it, tests and all.
# A run takes 1 to 3 seconds and the time that SLURM takes to start it: 4 ranks are 150 runs, 64 ranks a thousand.
#SBATCH --job-name=ztrain-regression
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
# SLURM runs a copy of this file from its spool folder, so the checkout is found through the folder of submission.
if [ -n "${SLURM_JOB_ID:-}" ]; then
  root=${ZTRAIN_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
else
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fi
script=slurm/regression.sh
for part in slurm/ranks.sh tools/regression/regression.py tests/regress/cluster/meshes.toml; do
  if [ ! -f "$root/$part" ]; then
    echo "$script: $root is no checkout of ztrain ($part is missing): submit from the root of one, or set ZTRAIN_ROOT" >&2
    exit 1
  fi
done
# shellcheck source=slurm/ranks.sh
source "$root/slurm/ranks.sh"
check_executable
command -v python3 >/dev/null || die "there is no python3 in PATH, which runs the tests"

if [ -n "${SLURM_JOB_ID:-}" ]; then
  find_launcher
  set -- --ranks "${SLURM_NTASKS:-${SLURM_NNODES:-1}}" --nodes "${SLURM_NNODES:-1}" --out "$PWD/runs/regression-$SLURM_JOB_ID" "$@"
else
  case " $*" in *" --ranks"*) ;; *) die "not inside a SLURM job: submit it with sbatch, or say --ranks N to start N with mpirun here" ;; esac
  start=(mpirun)
  if mpirun --version 2>&1 | grep -q "Open MPI"; then
    start+=(--oversubscribe --bind-to none)
    [ "$(id -u)" != 0 ] || start+=(--allow-run-as-root)
  fi
  set -- --out "$root/runs/regression" "$@"
fi
exec python3 -B "$root/tools/regression/regression.py" --ztrain "$ztrain" --launcher "${start[*]}" "$@"
