#!/usr/bin/env bash
# Makes a folder in which a build runs on a node that has nothing but a GPU driver: no CUDA toolkit, no MPI, no HDF5.
#
#   tools/bundle.sh [--build build/cuda] [--out FOLDER]
#
# The folder (by default BUILD/bundle) has the executable, its tests, the tools and decks of this checkout, every library
# that they are linked with or open while they run (cuDNN's parts, NVRTC's built-in functions, plugins of Open MPI and
# PMIx), and mpirun. The node needs bash, python3 and a C library at least as new as this machine's. On it:
#
#   FOLDER/acceptance.sh [options of tools/gpu_acceptance.sh]     whether the build works there
#   FOLDER/run.sh ztrain my.toml                                  any command, such as mpirun -np 8 ztrain my.toml
#
# Configure the build with -DZTRAIN_NATIVE=OFF unless the node has this machine's processor. Ranks of a bundle reach each
# other on one node alone: libraries of networks belong to the cluster, and stay behind.
set -euo pipefail
started_in=$PWD
cd "$(dirname "$(realpath "$0")")/.."

die() {
  echo "tools/bundle.sh: $*" >&2
  exit 1
}

build=build/cuda
out=
while [[ $# -gt 0 ]]; do
  case $1 in
    --build) build=$(cd "$started_in" && realpath -m "${2:?--build needs a folder}"); shift 2 ;;
    --out) out=$(cd "$started_in" && realpath -m "${2:?--out needs a folder}"); shift 2 ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) die "'$1' is no option; --help says what there is" ;;
  esac
done
[[ -x $build/ztrain ]] || die "there is no $build/ztrain: build it, or name another folder with --build"
out=${out:-$build/bundle}
[[ ! -e $out || -e $out/.ztrain-bundle ]] || die "$out is there and is no bundle: name another folder with --out"
command -v ompi_info >/dev/null || die "there is no ompi_info in PATH: load the Open MPI that ztrain was built with"
command -v mpirun >/dev/null || die "there is no mpirun in PATH: load the Open MPI that ztrain was built with"
rm -rf "$out"
# An unfinished folder is removed.
complete=false
trap '$complete || rm -rf "$out"' EXIT
mkdir -p "$out"
: > "$out/.ztrain-bundle"  # a later call may replace this folder
mkdir -p "$out"/{build/tests/mpi,build/tests/unit,lib,mpi/bin,mpi/plugins,mpi/pmix,mpi/share}

# needed FILE ...: prints the paths of the libraries that these are linked with, but for the C library's and the driver's.
needed() {
  local found
  found=$(ldd "$@" 2>/dev/null | grep -E '=>' | grep -vE '^\s*lib(cuda|nvidia-ml)\.so' | sort -u) || true
  if grep -q 'not found' <<< "$found"; then
    die "these libraries are not found here: $(grep 'not found' <<< "$found" | awk '{print $1}' | sort -u | paste -sd' ')"
  fi
  awk '$3 ~ /^\// && $3 !~ /\/(ld-linux[^\/]*|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl))\.so[^\/]*$/ {print $3}' <<< "$found" |
    sort -u
}

# put FILE ...: copies each into the folder of libraries, under the name that it is opened by.
put() {
  local path
  for path in "$@"; do
    [[ -e $out/lib/$(basename "$path") ]] || cp -L "$path" "$out/lib/"
  done
}

# put_needed FILE ...: copies the libraries that these files need.
put_needed() {
  local list
  list=$(needed "$@")
  mapfile -t list <<< "$list"
  put "${list[@]}"
}

path_of() { ompi_info --path "$1" | awk '{print $2}'; }

# Programs.
cp -L "$build/ztrain" "$out/build/"
cp -L "$(command -v mpirun)" "$out/mpi/bin/mpirun"
programs=("$build/ztrain" "$(command -v mpirun)")
for program in "$build"/tests/mpi/mpi_* "$build"/tests/unit/unit_* "$build"/tests/unit/driver; do
  [[ -f $program && -x $program ]] || continue
  cp -P "$program" "$out/build/tests/$(basename "$(dirname "$program")")/"
  programs+=("$program")
done
put_needed "${programs[@]}"

# What is opened while they run lies beside what they are linked with.
linked=$(needed "$build/ztrain")
for path in $(grep -E '/libcudnn\.so' <<< "$linked" || true); do
  parts=("$(dirname "$path")"/libcudnn_*.so.[0-9])
  put "${parts[@]}"
  put_needed "${parts[@]}"
done
for path in $(grep -E '/libnvrtc\.so' <<< "$linked" || true); do
  put "$(dirname "$path")"/libnvrtc-builtins.so.[0-9]*
done
plugins=()
for plugin in "$(path_of pkglibdir)"/mca_*.so; do
  # A plugin that needs a network's library is left out.
  [[ $(ldd "$plugin") =~ lib(ucp|fabric|psm|ibverbs|portals|hcoll) ]] || plugins+=("$plugin")
done
cp -L "${plugins[@]}" "$out/mpi/plugins/"
put_needed "${plugins[@]}"
for path in $(needed "${plugins[@]}" | grep -E '/libpmix\.so' || true); do
  plugins=("$(dirname "$(realpath "$path")")"/pmix/*.so)
  cp -L "${plugins[@]}" "$out/mpi/pmix/"
  put_needed "${plugins[@]}"
done
cp -rL "$(path_of pkgdatadir)"/. "$out/mpi/share/"
cp -r tools inputs "$out/"
mkdir -p "$out/tests"
cp -r tests/regress "$out/tests/"

cat > "$out/run.sh" <<'RUN'
#!/usr/bin/env bash
# Runs a command with the programs and libraries of this folder: run.sh ztrain my.toml
here=$(dirname "$(realpath "$0")")
export PATH=$here/build:$here/mpi/bin:$PATH
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OPAL_PREFIX=$here/mpi OPAL_LIBDIR=$here/lib OPAL_BINDIR=$here/mpi/bin
export OPAL_PKGLIBDIR=$here/mpi/plugins OPAL_PKGDATADIR=$here/mpi/share OPAL_SYSCONFDIR=$here/mpi/share
export OMPI_MCA_mca_base_component_path=$here/mpi/plugins
export PMIX_INSTALL_PREFIX=$here/mpi PMIX_PKGLIBDIR=$here/mpi/pmix PMIX_MCA_mca_base_component_path=$here/mpi/pmix
# One node: nothing is started by ssh, which may be missing, and messages need no network.
export OMPI_MCA_plm_rsh_agent=sh OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader,tcp}
exec "$@"
RUN
cat > "$out/acceptance.sh" <<'RUN'
#!/usr/bin/env bash
# Tells whether the build of this folder works on this node: acceptance.sh [options of tools/gpu_acceptance.sh]
here=$(dirname "$(realpath "$0")")
exec "$here/run.sh" "$here/tools/gpu_acceptance.sh" --build "$here/build" "$@"
RUN
chmod +x "$out/run.sh" "$out/acceptance.sh"
complete=true
echo "$out: $(du -sh "$out" | cut -f1), $(find "$out/lib" -type f | wc -l) libraries; on the node: $out/acceptance.sh"
