#!/usr/bin/env bash
# Everything a change must pass: formatting, layers, a build without warnings, all tests. Arguments go to ctest:
#   tools/test.sh -R layout        the tests whose name has "layout"
#   tools/test.sh -L mpi           those with the label mpi
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"
exec </dev/null

failed=()

phase "Packages"
tools/install_packages.sh --tests
# Where there is a CUDA toolkit, the sources that need nothing else are compiled too.
if command -v nvcc >/dev/null; then
  tools/install_cuda_headers.sh || echo "The sources that use cuDNN are not compiled in this run."
fi

phase "Formatting"
if tools/format.sh --check; then echo "formatted"; else failed+=("formatting"); fi

phase "Layers"
"$python" tools/check_layers.py || failed+=("layers")

phase "GPU kernels as compiled"
if command -v nvcc >/dev/null; then
  "$python" tools/kernel_report.py --check || failed+=("GPU kernels as compiled")
else
  echo "Skipped: there is no CUDA toolkit (nvcc) here."
fi

phase "Build"
cmake --preset ci
cmake --build --preset ci

phase "Tests"
# Runs as root must say so to Open MPI; the registered commands pass its flag, tests that start mpirun inherit these.
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
ctest --preset ci -j6 --output-on-failure --output-junit tests.xml "$@" || failed+=("tests")
echo "Seconds of each test:"
sed -n 's/.*<testcase name="\([^"]*\)".* time="\([^"]*\)".*/\2 \1/p' build/ci/tests.xml | sort -rn

# Without -march=native other code is compiled, and a copied executable has to run on other processors. Each source is compiled
# by itself here, as by the preset cpu: in groups a source may have from another what it does not include. The libraries are
# those of a site without Debian, with MPICH and without liburing.
if [ $# = 0 ]; then
  ranks=(comm comm_in_flight mesh agree checkpoint checkpoint_neighbours strategies tied_stages)
  alone=(kernels_products kernels_heavy kernels_attention nvme_store)
  phase "Build for any x86-64"
  rm -rf build/site-prefix
  tools/site_prefix.sh build/site-prefix
  cmake --preset site
  cmake --build --preset site --target ztrain "${alone[@]/#/unit_}" "${ranks[@]/#/mpi_}"
  phase "Tests of that build"
  unit="unit/($(any "${alone[@]}"))(/.*)?" mpi="mpi/($(any "${ranks[@]}"))/np[23]|mpi/(mesh|agree)/np4"
  ctest --preset site -j6 --no-tests=error --output-on-failure -R "^($unit|$mpi|regress/instruction_sets)$" ||
    failed+=("tests for any x86-64")

  phase "aarch64"
  status=0
  tools/aarch64.sh build/ci/ztrain || status=$?
  if [ $status = 3 ]; then
    echo "The build for aarch64 is skipped: its packages cannot be downloaded."
  elif [ $status != 0 ]; then
    failed+=("aarch64")
  fi
fi

print_times
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
echo "All checks passed."
