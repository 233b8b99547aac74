#!/usr/bin/env bash
# Installs the Debian packages that building, testing and plotting need, and nothing when all of them are there.
# Works as root, or through sudo. Debian 12 or a release of the same package names.
#   tools/install_packages.sh --tests    also installs what only tests need: SLURM's daemons, MPICH beside Open MPI, aarch64's compiler
#   ZTRAIN_SKIP_INSTALL=1   installs nothing: for sites where modules or Spack provide the libraries
set -euo pipefail

packages=(
  # the build
  g++ cmake ninja-build ccache git
  # what the program links
  libopenmpi-dev openmpi-bin libhdf5-openmpi-dev libtrilinos-kokkos-dev libdnnl-dev libtomlplusplus-dev
  libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev liburing-dev
  # tests and benchmarks
  libgtest-dev libbenchmark-dev clang-format
  # plots, reading checkpoints, preparing data
  python3 python3-numpy python3-h5py python3-matplotlib python3-jinja2 python3-xxhash zstd
)
# The test slurm/jobs starts a SLURM cluster on this machine, and is skipped without these packages. The preset `site` needs MPICH,
# and tools/aarch64.sh a cross compiler and an emulator. Debian's mpicc and mpirun stay those of Open MPI.
if [ "${1:-}" = --tests ]; then
  packages+=(slurm-wlm munge iproute2 mpich libmpich-dev libhdf5-mpich-dev g++-aarch64-linux-gnu qemu-user)
fi

if [ "${ZTRAIN_SKIP_INSTALL:-0}" = 1 ]; then exit 0; fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "tools/install_packages.sh: this is not a Debian-like system, so the packages cannot be installed here." >&2
  echo "Provide these by other means (modules, Spack), then set ZTRAIN_SKIP_INSTALL=1:" >&2
  printf '  %s\n' "${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true)
  case $'\n'"$status"$'\n' in *$'\ninstalled\n'*) ;; *) missing+=("$package") ;; esac
done
if [ ${#missing[@]} = 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "tools/install_packages.sh: missing packages, and neither root nor sudo is here to install them." >&2
    echo "Ask an administrator to run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing ${#missing[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a command with its output kept back, and shows that output when it fails.
quietly() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    echo "tools/install_packages.sh: failed: $*" >&2
    exit 1
  fi
}
quietly apt-get -o Acquire::Retries=3 update
quietly apt-get -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${missing[@]}"
