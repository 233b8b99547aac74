#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs packages, builds, measures which precision this machine is fast in,
# trains inputs/quickstart.toml in it on two ranks for about 100 seconds (100 to 1,000 steps), writes a few words with the
# trained model and plots the run. Keys of the deck that are given here go to the training run, before what was measured:
#   tools/quickstart.sh --run.steps=50
# PROMPT=TEXT changes the text that the trained model continues.
set -euo pipefail

for word in "$@"; do
  if [[ $word == -h || $word == --help ]]; then
    sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
    exit
  elif [[ ! $word =~ ^--[a-z_]+\.[a-z_0-9]+= ]]; then
    echo "tools/quickstart.sh: '$word' is no key of the deck, such as --run.steps=50; --help tells more" >&2
    exit 2
  fi
done

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
if [ "$count" -gt 1 ]; then
  printf '\n%s is there: this one trains anew, in %s\n' runs/quickstart "runs/quickstart-$count"
fi

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
prompt=${PROMPT:-namespace ztrain}
printf 'What the model writes behind "%s":\n\n' "$prompt"
"$ztrain" generate "$checkpoint" --prompt "$prompt" --tokens 200 --temperature 0.8 --seed 1

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

Another sample ${ztrain#"$root"/} generate $checkpoint --prompt "#include" --tokens 200
A longer run   $0 --run.steps=2000
Your own       docs/data.md, docs/fine-tuning.md; all keys of a deck: docs/inputs.md
END
