# shellcheck shell=bash
# Sourced by the scripts in this folder: set -u is on, $root is the repository.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# Debian's python3 is the one that Debian's numpy, h5py and matplotlib belong to; another may come first on PATH.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

cores=$(nproc)
phase_name=""
phase_start=0
phase_report=""

# phase NAME: prints a heading and starts a clock; phase "" only stops the last one.
phase() {
  if [ -n "$phase_name" ]; then
    phase_report+=$(printf '  %-28s %4d s' "$phase_name" $((SECONDS - phase_start)))$'\n'
  fi
  phase_name=$1
  phase_start=$SECONDS
  if [ -n "$phase_name" ]; then printf '\n== %s\n' "$phase_name"; fi
}

# Prints the seconds of every phase since the script began.
print_times() {
  phase ""
  printf '\nTime\n%s  %-28s %4d s\n' "$phase_report" "total" "$SECONDS"
}

# In a container the kernel usually forbids Open MPI's direct copy between processes, which it then reports for every
# message; messages go through shared memory instead.
if [ -e /.dockerenv ] || [ -e /run/.containerenv ]; then
  export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
fi

# mpi_ranks N: fills the array mpirun with a launcher for N ranks on this machine.
mpi_ranks() {
  mpirun=(mpirun -np "$1")
  # Other MPI libraries start as many ranks as they are told, also for root, and do not know these options.
  if mpirun --version 2>&1 | grep -q "Open MPI"; then
    mpirun+=(--oversubscribe)
    if [ "$(id -u)" = 0 ]; then mpirun+=(--allow-run-as-root); fi
  fi
  # Ranks that share a core must not be bound to one each.
  if [ "$cores" -ge 2 ] && [ "$cores" -ge "$1" ]; then mpirun+=(--bind-to core); else mpirun+=(--bind-to none); fi
}

# any WORD...: prints a regular expression that matches each of these words.
any() {
  local IFS="|"
  echo "$*"
}
