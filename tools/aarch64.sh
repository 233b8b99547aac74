#!/usr/bin/env bash
# Builds ztrain for aarch64 on a Debian machine of another kind, and runs it there by emulation: unit tests of kernels, and the smoke
# deck on two ranks, whose losses must be those of the build for this machine. Nothing is optimised, since the build is for tests.
#   tools/aarch64.sh ZTRAIN    ZTRAIN: an executable of this machine (build/cpu/ztrain). `tools/install_packages.sh --tests` installs
#                              the compiler and the emulator; packages of aarch64 are unpacked below build/aarch64-root.
# Ends with status 3 if the packages of aarch64 cannot be downloaded.
set -euo pipefail

if [ $# != 1 ] || ! [ -x "$1" ]; then
  echo "usage: tools/aarch64.sh ZTRAIN, an executable of this machine such as build/cpu/ztrain" >&2
  exit 2
fi
own=$(realpath "$1")
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

phase "Packages of aarch64"
sysroot=$root/build/aarch64-root state=$root/build/aarch64-packages
libraries=$sysroot/usr/lib/aarch64-linux-gnu
if ! [ -e "$libraries/libhdf5.so" ]; then
  mkdir -p "$state/lists/partial" "$state/archives/partial" "$sysroot"
  : >"$state/status"
  # A list of packages of its own, so that this machine's packages stay as they are.
  apt=(apt-get -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::Cache="$state" -o Dir::State::status="$state/status"
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Debug::NoLocking=1)
  "${apt[@]}" update >/dev/null || exit 3
  "${apt[@]}" install -y --no-install-recommends --download-only libc6-dev libstdc++-12-dev libopenmpi-dev libhdf5-openmpi-dev \
    libtrilinos-kokkos-dev libdnnl-dev libtomlplusplus-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev \
    liburing-dev libgtest-dev >/dev/null || exit 3
  for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  # Debian's alternatives are made when packages are installed, and these are not.
  ln -sf libmpi.so.40 "$libraries/libmpi.so"
  ln -sf libhdf5_openmpi.so "$libraries/libhdf5.so"
fi

phase "Build for aarch64"
cmake --preset portable -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DZTRAIN_AARCH64_ROOT="$sysroot" \
  -DZTRAIN_UNITY=ON -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_CUDA_COMPILER=NOTFOUND -DMPI_C_LIB_NAMES=mpi \
  -DMPI_mpi_LIBRARY="$libraries/libmpi.so" -DMPI_C_HEADER_DIR="$libraries/openmpi/include"
kernels=(orthogonal norm_forms dequantize rope experts)
cmake --build build/aarch64 --target ztrain "${kernels[@]/#/unit_kernels_}"

phase "Run on aarch64"
emulated=(qemu-aarch64 -L "$sysroot")
(cd build/aarch64 && ctest --no-tests=error --output-on-failure -R "^unit/kernels_($(any "${kernels[@]}"))\$")
mpi_ranks 2
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMPI_MCA_btl=self,tcp OMP_NUM_THREADS=1
"${mpirun[@]}" "$own" inputs/smoke.toml --run.output="$runs/own" >/dev/null
"${mpirun[@]}" "${emulated[@]}" build/aarch64/ztrain inputs/smoke.toml --run.output="$runs/aarch64"
"$python" - "$runs" <<'PYTHON'
import json, pathlib, sys

losses = [
    [json.loads(line)["loss"] for line in (pathlib.Path(sys.argv[1]) / name / "metrics.jsonl").read_text().splitlines()]
    for name in ("own", "aarch64")
]
assert len(losses[0]) == len(losses[1]), losses
worst = max(abs(a - b) / abs(a) for a, b in zip(*losses))
print(f"losses of {len(losses[0])} steps agree within {worst:.1e}")
sys.exit(worst > 1e-5)
PYTHON
