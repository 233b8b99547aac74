#!/usr/bin/env bash
# Whether a build works on this node's GPUs: one command, at most 28 minutes, no network.
#
#   tools/gpu_acceptance.sh [--build build/cuda] [--out FOLDER] [--minutes 28] [--node]
#                           [--only PHASE[,PHASE ...]] [--without PHASE[,PHASE ...]]
#
# Needs the build folder, bash, python3 and mpirun. Without compute-sanitizer its phase is reported as LACK. A table of what passed, failed or
# did not run, and why, comes at the end; it is in table.txt of the output folder after each phase, beside logs and
# benchmark reports (JSON). On a build for CPUs what needs a GPU is left out.
#
# tools/bundle.sh makes a folder of a build with all libraries that it needs, for a node that has a driver alone. The phases,
# in the order of their importance:
#
#   facts        GPUs, driver, versions of libraries             graphs       equal losses with CUDA graphs
#   libraries    each opens, NVRTC compiles, two ranks start     determinism  twice and resumed, bit for bit
#   first        one of everything, within 135 s                 memory       arenas as planned; outside, growth bounded
#   unit         the unit tests, on the device                   bench        speed, and PyTorch's where it is there
#   steps        the tests that train                            late         kernel tests whose launches do not wait
#   parity       losses and gradient norms of CPU ranks          sanitizer    memcheck and racecheck over two steps
#   attention    16 bits, packed, 1,000 and 2,048: cuDNN's       fp8          speed of 8-bit products over bf16
#   nccl         its tests and training, on one GPU too          generate     tokens from a checkpoint
#
# With --node these run instead, on a node of four or eight GPUs: facts, libraries, pipelines (of 2 and 4 stages), published (speed
# of 7B and 8B beside figures of others), nvls (NVLink SHARP on and off) and connected (memory that connections and libraries take).
#
# The exit status is 1 where a check failed, and where a phase did not come to the checks that it must not end without
# (tools/acceptance/phases.py lists them), for lack of time or of a program. What this machine has nothing for, such as
# 8-bit products on an A100, is said, and no failure. A phase is left out by --without.
set -uo pipefail
started_in=$PWD
script=$(realpath "$0")
cd "$(dirname "$script")/.." || exit 2

misused() {
  echo "gpu_acceptance.sh: $*; --help says what there is" >&2
  exit 2
}

# What is given is relative to the folder of whoever gives it.
absolute() {
  if [[ $1 = /* ]]; then echo "$1"; else echo "${started_in%/}/$1"; fi
}

build=build/cuda
out=
more=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --build=*|--out=*|--minutes=*|--only=*|--without=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
  esac
  case $1 in
    --build|--out|--minutes|--only|--without) [[ -n ${2:-} && $2 != --* ]] || misused "$1 needs a value" ;;
  esac
  case $1 in
    --build) build=$(absolute "$2"); shift 2 ;;
    --out) out=$(absolute "$2"); shift 2 ;;
    --minutes|--only|--without) more+=("$1" "$2"); shift 2 ;;
    --node) more+=("$1"); shift ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$script"; exit 0 ;;
    *) misused "'$1' is no option" ;;
  esac
done
if [[ ! -x $build/ztrain ]]; then
  echo "gpu_acceptance.sh: there is no $build/ztrain: build it, or name another folder with --build" >&2
  exit 2
fi

gpus=0
if grep -qs '^ZTRAIN_CUDA:BOOL=ON' "$build/CMakeCache.txt" || [[ $(ldd "$build/ztrain") = *libcublasLt* ]]; then
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
  if [[ $gpus -eq 0 ]]; then
    python3 -B tools/acceptance/libraries.py --build "$build" --out "${out:-$build/acceptance}"
    echo "gpu_acceptance.sh: $build is a build for GPUs, and nvidia-smi shows none" >&2
    exit 1
  fi
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
    gpus=$(tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .)
  fi
fi
exec python3 -B tools/acceptance/phases.py --build "$build" --out "${out:-$build/acceptance}" --gpus "$gpus" \
  ${more[@]+"${more[@]}"}
