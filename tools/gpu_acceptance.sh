#!/usr/bin/env bash
# Whether a build works on this node's GPUs: one command, under 8 minutes, no network.
#
#   tools/gpu_acceptance.sh [--build build/cuda] [--out FOLDER] [--only PHASE[,PHASE ...]]
#
# Needs the build folder, bash and python3; mpirun for several ranks. A table of what passed, failed or was skipped, and
# why, comes at the end; the exit status is 1 where anything failed. Logs, benchmark reports (JSON) and the table stay in the
# output folder. On a build for CPUs what needs a GPU is skipped.
#
#   facts        GPUs, driver, versions of libraries             determinism  twice and resumed, bit for bit
#   unit *       the unit tests, on the device                   graphs       equal losses with CUDA graphs
#   parity *     losses and gradient norms of CPU ranks          generate     tokens from a checkpoint
#   memory *     arenas as planned; outside, growth bounded      ranks        tests of NCCL and of training
#   bench *      speed, and PyTorch's where it is there          sanitizer    memcheck and racecheck over two steps
#   fp8          speed of 8-bit products over bf16
#
# What there is no time for is skipped, but a phase with a star must have passed something.
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
    -h|--help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
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
essential="unit parity memory bench"  # must have passed something
phases_run=

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

# phase NAME UNTIL COMMAND...: runs it, collects its lines of verdicts, and goes on whatever it does. It may take until
# that second of the script: what earlier ones left over is the later ones'.
phase() {
  local name=$1 until=$2
  shift 2
  if [[ -n $only && ,$only, != *,$name,* ]]; then return; fi
  phases_run+=" $name"
  local limit=$((until - SECONDS))
  if ((limit < 10)); then
    echo "$name SKIP phase: no time is left for it" >> "$results"
    return
  fi
  echo "== $name (at $SECONDS s, at most $limit s)"
  local start=$SECONDS log=$out/$name.log code
  ZTRAIN_ACCEPTANCE_SECONDS=$((limit - 5)) timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  grep -E '^(PASS|FAIL|SKIP) ' "$log" | sed "s/^/$name /" >> "$results"
  if [[ $code -eq 124 || $code -eq 137 ]]; then
    echo "$name SKIP phase: cut off after $limit s" >> "$results"
  elif [[ $code -ne 0 ]] && ! grep -q '^FAIL ' "$log"; then
    echo "$name FAIL phase: exit status $code; see $log" >> "$results"
  fi
  echo "   $((SECONDS - start)) s"
}

require_passes() {
  local name
  for name in $essential; do
    if [[ " $phases_run " == *" $name "* ]] && ! grep -q "^$name PASS " "$results"; then
      echo "$name FAIL phase: nothing of it passed, and it is essential" >> "$results"
    fi
  done
}

# Algorithms of products are measured anew, and kept for the runs to come.
export XDG_CACHE_HOME
XDG_CACHE_HOME=$(mkdir -p "$out/cache" && cd "$out/cache" && pwd)

# check PHASE UNTIL SCRIPT [WHAT]
check() { phase "$1" "$2" python3 -B "tools/acceptance/$3.py" "${@:4}" --build "$build" --out "$out/runs" --gpus "$gpus"; }

#     phase    until script
check facts        10 facts
check unit         85 tests unit
check parity      195 parity
check memory      235 checks memory
check bench       320 speed bench
check fp8         375 speed fp8
check determinism 405 checks determinism
check graphs      420 checks graphs
check generate    428 checks generate
check ranks       445 tests ranks
check sanitizer   470 checks sanitizer
require_passes

echo
echo "phase        verdict  check"
while read -r name verdict rest; do printf '%-12s %-8s %s\n' "$name" "$verdict" "$rest"; done < "$results" | cut -c1-180 \
  | tee "$out/table.txt"
count() { grep -c "^[a-z0-9]* $1 " "$results"; }
failed=$(count FAIL)
echo "$(count PASS) passed, $failed failed, $(count SKIP) skipped in $SECONDS s; logs in $out"
[[ $failed -eq 0 && -s $results ]]
