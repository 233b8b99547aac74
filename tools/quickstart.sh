#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs packages, builds, measures which precision this machine is fast in,
# trains inputs/quickstart.toml in it on two ranks for about 100 seconds (100 to 1,000 steps), writes a few words with the
# trained model and plots the run. Arguments are passed to the training run and come before what was measured, for example
#   tools/quickstart.sh --run.steps=50
# PROMPT=TEXT changes the text that the trained model continues.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

phase "Packages"
tools/install_packages.sh

phase "Build"
# What is built for the first time is built in groups of sources, in less time. A tree that is there stays as it was
# configured.
[ -e build/cpu/build.ninja ] || cmake --preset cpu -DZTRAIN_UNITY=ON
cmake --build --preset cpu --target ztrain
ztrain=$root/build/cpu/ztrain

# An earlier run's folder is never touched: it would be resumed.
output=$root/runs/quickstart
count=1
while [ -e "$output" ]; do
  count=$((count + 1))
  output=$root/runs/quickstart-$count
done

phase "Measure"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mpi_ranks 2
fitted=$("$python" tools/fit_run.py inputs/quickstart.toml --launch "${mpirun[*]@Q} ${ztrain@Q}" --seconds 100 -- "$@")
mapfile -t fitted < <(printf '%s' "$fitted")

phase "Train on 2 ranks"
"${mpirun[@]}" "$ztrain" inputs/quickstart.toml --run.output="$output" "${fitted[@]}" "$@"
checkpoint=$(find "$output/checkpoints" -maxdepth 1 -name 'step_*' ! -name '*.tmp' | sort -V | tail -n 1)
if [ -z "$checkpoint" ]; then
  echo "tools/quickstart.sh: no checkpoint in $output/checkpoints" >&2
  exit 1
fi

phase "Generate"
mpi_ranks 1
"${mpirun[@]}" "$ztrain" generate "$checkpoint" --prompt "${PROMPT:-namespace ztrain}" --tokens 200 --temperature 0.8 --seed 1

phase "Plot"
"$python" tools/plot_run.py "$output" -o "$output/plot.png"
held_out=$("$python" tools/plot_run.py "$output" --last-validation)

print_times
cat <<END

Held-out loss  $held_out
Plot           $output/plot.png
Checkpoint     $checkpoint
               (any HDF5 reader sees the whole model in $checkpoint/index.h5)
Metrics        $output/metrics.jsonl
Resolved deck  $output/deck.resolved.toml
END
