#!/usr/bin/env bash
# Whether a build works on this node's GPUs: one command, under 8 minutes, no network.
#
#   tools/gpu_acceptance.sh [--build build/cuda] [--out FOLDER] [--only PHASE[,PHASE ...]]
#
# Needs the build folder, bash and python3; mpirun for several ranks. A table of what passed, failed or was skipped, and
# why, comes at the end; the exit status is 1 where anything failed. Logs, benchmark reports (JSON) and the table stay in the
# output folder. On a build for CPUs what needs a GPU is skipped.
#
#   facts         GPUs, driver, versions of libraries            graphs      equal losses with CUDA graphs
#   unit          the unit tests, on the device                  bench       speed; PyTorch beside it where it is there
#   parity        50 steps against losses of CPU ranks           sanitizer   memcheck and racecheck over two steps
#   determinism   twice and resumed, bit for bit                 memory      peak = plan + outside
set -uo pipefail
cd "$(dirname "$0")/.."

build=build/cuda
out=
only=
while [[ $# -gt 0 ]]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    -h|--help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "gpu_acceptance.sh: '$1' is no option; --help says what there is" >&2; exit 2 ;;
  esac
done
if [[ ! -x $build/ztrain ]]; then
  echo "gpu_acceptance.sh: there is no $build/ztrain: build it, or name another folder with --build" >&2
  exit 2
fi
out=${out:-$build/acceptance}
mkdir -p "$out"
results=$out/results.txt
: > "$results"
deadline=470  # seconds for all phases together

gpus=0
if grep -qs '^ZTRAIN_CUDA:BOOL=ON' "$build/CMakeCache.txt" || ldd "$build/ztrain" | grep -q 'libcublasLt'; then
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
  if [[ $gpus -eq 0 ]]; then
    echo "gpu_acceptance.sh: $build is a build for GPUs, and nvidia-smi shows none" >&2
    exit 1
  fi
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
    gpus=$(tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .)
  fi
fi

# phase NAME SECONDS COMMAND...: runs it, collects its lines of verdicts, and goes on whatever it does.
phase() {
  local name=$1 limit=$2
  shift 2
  if [[ -n $only && ,$only, != *,$name,* ]]; then return; fi
  local left=$((deadline - SECONDS))
  if ((left < 5)); then
    echo "$name SKIP phase: no time is left for it" >> "$results"
    return
  fi
  if ((limit > left)); then limit=$left; fi
  echo "== $name (at $SECONDS s, at most $limit s)"
  local start=$SECONDS log=$out/$name.log code
  ZTRAIN_ACCEPTANCE_SECONDS=$((limit - 5)) timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  grep -E '^(PASS|FAIL|SKIP) ' "$log" | sed "s/^/$name /" >> "$results"
  if [[ $code -eq 124 || $code -eq 137 ]]; then
    echo "$name FAIL phase: longer than $limit s" >> "$results"
  elif [[ $code -ne 0 ]] && ! grep -q '^FAIL ' "$log"; then
    echo "$name FAIL phase: exit status $code; see $log" >> "$results"
  fi
  echo "   $((SECONDS - start)) s"
}

# The kernels' tests first: the others only show that the host's side was built right. CPU builds run a few.
unit_tests() {
  local test tests=("$build"/tests/unit/unit_kernels_*)
  if ((gpus > 0)); then
    for test in "$build"/tests/unit/unit_*; do
      if [[ $test != */unit_kernels_* ]]; then tests+=("$test"); fi
    done
  else
    tests=("$build"/tests/unit/unit_kernels_light*)
    echo "SKIP other unit tests: a build for CPUs runs them with ctest"
  fi
  for test in "${tests[@]}"; do
    if [[ ! -f $test || ! -x $test ]]; then continue; fi
    local name code text
    name=$(basename "$test")
    text=$(timeout 60 "$test" --gtest_brief=1 2>&1)
    code=$?
    if [[ $code -eq 0 ]]; then
      echo "PASS $name: $(grep -oE '[0-9]+ tests? ran|[0-9]+ tests? from' <<< "$text" | tail -1)"
    else
      echo "$text" | tail -40
      echo "FAIL $name: exit status $code: $(grep -m1 -E 'FAILED  \]|Failure|what\(\)|rror' <<< "$text" | tr -d '\n')"
    fi
  done
  if [[ ! -d $build/tests/unit ]]; then echo "SKIP unit tests: $build has none"; fi
}
# Algorithms of products are measured anew, and kept for the runs to come.
export XDG_CACHE_HOME
XDG_CACHE_HOME=$(mkdir -p "$out/cache" && cd "$out/cache" && pwd)
export -f unit_tests
export build gpus

here=$(pwd)
checks() { python3 -B "$here/tools/acceptance/$1" "${@:2}" --build "$build" --out "$out/runs" --gpus "$gpus"; }
export -f checks
export here out

phase facts 30 bash -c 'checks facts.py'
phase unit 110 bash -c unit_tests
phase parity 200 bash -c 'checks parity.py'
phase determinism 50 bash -c 'checks checks.py determinism'
phase memory 45 bash -c 'checks checks.py memory'
phase graphs 40 bash -c 'checks checks.py graphs'
phase bench 130 bash -c 'checks checks.py bench'
phase sanitizer 115 bash -c 'checks checks.py sanitizer'

echo
echo "phase        verdict  check"
while read -r name verdict rest; do printf '%-12s %-8s %s\n' "$name" "$verdict" "$rest"; done < "$results" | cut -c1-180 \
  | tee "$out/table.txt"
count() { grep -c "^[a-z]* $1 " "$results"; }
failed=$(count FAIL)
echo "$(count PASS) passed, $failed failed, $(count SKIP) skipped in $SECONDS s; logs in $out"
[[ $failed -eq 0 && -s $results ]]
