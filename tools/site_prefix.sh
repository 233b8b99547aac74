#!/usr/bin/env bash
# Makes a folder of libraries as a site without Debian has them. All that a build needs is below one prefix, pkg-config knows no
# library, Kokkos has its own name, MPI is MPICH with an HDF5 for it, and there is no liburing.
#   tools/site_prefix.sh PREFIX    links into PREFIX, which must be empty or absent, what Debian's packages have in /usr
# The preset `site` builds with build/site-prefix and looks nowhere else.
set -euo pipefail

if [ $# != 1 ]; then
  echo "usage: tools/site_prefix.sh PREFIX" >&2
  exit 2
fi
prefix=$1
if [ -n "$(ls -A "$prefix" 2>/dev/null)" ]; then
  echo "tools/site_prefix.sh: $prefix is not empty" >&2
  exit 1
fi

if ! [ -e /usr/bin/h5pcc.mpich ]; then
  echo "tools/site_prefix.sh: MPICH and its HDF5 are not here: tools/install_packages.sh --tests installs them" >&2
  exit 1
fi
packages=(libtrilinos-kokkos-dev libdnnl-dev libtomlplusplus-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libfmt-dev
  libxxhash-dev libgtest-dev)
mkdir -p "$prefix/bin" "$prefix/lib"
for package in "${packages[@]}"; do
  # CMake's packages derive the prefix from the real folder of their files, so these files are copied.
  dpkg -L "$package" | while read -r path; do
    case $path in
      */cmake/Kokkos*) continue ;; # it describes Trilinos
      /usr/include/trilinos/*) place=$prefix/include/${path#/usr/include/trilinos/} ;;
      */libtrilinos_*) place=$prefix/lib/lib${path##*/libtrilinos_} ;;
      /usr/include/* | /usr/lib/*.so | /usr/lib/*.a | *.cmake) place=$prefix/${path#/usr/} ;;
      *) continue ;;
    esac
    if [ -d "$path" ]; then continue; fi
    mkdir -p "${place%/*}"
    case $path in
      *.cmake) cp "$path" "$place" ;;
      *.so) # CMake's packages name the library with its version
        real=$(readlink -f "$path")
        ln -sf "$real" "$place"
        ln -sf "$real" "${place%/*}/${real##*/}"
        ;;
      *) ln -s "$path" "$place" ;;
    esac
  done
done
# MPI and HDF5 are found by their compilers, and other programs by name. mpiexec looks for its proxy in its own folder.
for tool in mpicc mpicxx mpiexec h5pcc; do ln -s "/usr/bin/$tool.mpich" "$prefix/bin/$tool"; done
for tool in hydra_pmi_proxy ccache ninja python3; do
  if path=$(command -v "$tool"); then ln -s "$path" "$prefix/bin/$tool"; fi
done
