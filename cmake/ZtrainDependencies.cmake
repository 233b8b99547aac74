# Finds every external package once, below any prefix. Each becomes one target that the layers name. Missing packages are
# collected first, so that one message names all of them.
find_program(ZTRAIN_CCACHE ccache)
if(ZTRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Else it keeps nothing of a source with a precompiled header. No source here asks for the time of its compilation.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ZTRAIN_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ZTRAIN_CCACHE})
endif()
include(ZtrainFetch)
set(ZTRAIN_MISSING "")

# ztrain_need(PACKAGE "TITLE" ROOT [COMPONENTS ...]): finds the package or, if it is allowed, fetches it. ROOT is the variable
# that names the folder of an installed one.
macro(ztrain_need package title root)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    ztrain_fetch(${package})
  endif()
  if(NOT ${package}_FOUND)
    string(APPEND ZTRAIN_MISSING "\n  ${title}: -D${root}=FOLDER")
  endif()
endmacro()

find_package(Threads REQUIRED)
ztrain_need(MPI "MPI (Open MPI, MPICH or a descendant)" MPI_HOME COMPONENTS C)
ztrain_need(ZtrainKokkos "Kokkos" Kokkos_ROOT)
if(NOT ZTRAIN_CUDA)
  ztrain_need(ZtrainDnnl "oneDNN" dnnl_ROOT)
endif()
ztrain_need(ZtrainHdf5 "HDF5 (serial, or parallel of the same MPI)" HDF5_ROOT)
string(APPEND ZTRAIN_MISSING "${ZTRAIN_HDF5_MISFIT}")
ztrain_need(fmt "fmt" fmt_ROOT)
ztrain_need(nlohmann_json "nlohmann-json" nlohmann_json_ROOT)
ztrain_need(tomlplusplus "toml++" tomlplusplus_ROOT)
ztrain_need(yaml-cpp "yaml-cpp" yaml-cpp_ROOT)
ztrain_need(CLI11 "CLI11" CLI11_ROOT)
ztrain_need(ZtrainXxhash "xxhash" xxhash_ROOT)
if(ZTRAIN_TESTS)
  ztrain_need(GTest "GoogleTest (-DZTRAIN_TESTS=OFF does without)" GTest_ROOT)
endif()
if(ZTRAIN_BENCH)
  ztrain_need(benchmark "Google Benchmark (-DZTRAIN_BENCH=OFF does without)" benchmark_ROOT)
endif()
# Without liburing, threads read and write NVMe drives.
if(NOT ZTRAIN_URING STREQUAL "OFF")
  find_package(ZtrainUring QUIET)
endif()
if(ZTRAIN_URING STREQUAL "ON" AND NOT ZtrainUring_FOUND)
  string(APPEND ZTRAIN_MISSING "\n  liburing (-DZTRAIN_URING=OFF does without): -Dliburing_ROOT=FOLDER")
endif()

if(ZTRAIN_MISSING)
  message(FATAL_ERROR "Packages that ztrain needs were not found:${ZTRAIN_MISSING}\n"
    "Install them, or tell where they are: each by its variable above, or all by -DCMAKE_PREFIX_PATH=\"FOLDER;FOLDER\". "
    "-DZTRAIN_FETCH=ON downloads those of fmt, nlohmann-json, toml++, yaml-cpp, CLI11, xxhash and GoogleTest that are missing. "
    "On Debian tools/install_packages.sh installs all.")
endif()

# The mpirun of Open MPI takes other options than that of MPICH and of its descendants.
include(CheckSymbolExists)
set(CMAKE_REQUIRED_INCLUDES ${MPI_C_INCLUDE_DIRS})
check_symbol_exists(OPEN_MPI mpi.h ZTRAIN_OPEN_MPI)
unset(CMAKE_REQUIRED_INCLUDES)
if(HDF5_IS_PARALLEL)
  set(kind parallel)
else()
  set(kind serial)
endif()
if(TARGET ztrain::uring)
  set(ways io_uring)
else()
  set(ways "threads, without liburing")
endif()
message(STATUS "MPI: ${MPI_C_LIBRARIES}; HDF5: ${HDF5_VERSION}, ${kind}; NVMe: ${ways}")
