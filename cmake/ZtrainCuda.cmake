# The CUDA side of the build. A source named *_cuda.cpp or *.cu needs the toolkit and its libraries (cuBLASLt, cuDNN,
# NCCL) alone, no Kokkos: those files are compiled on every machine that has the toolkit, so that a CPU build notices
# when one of them breaks. The kernels' other sources are one for CPU and GPU; with ZTRAIN_CUDA nvcc compiles them.
#
# CMAKE_CUDA_ARCHITECTURES is read by CMake itself; the presets set it.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know this flag of a compiler newer than itself.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  # One runtime in the process, the one that the libraries use.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  find_package(CUDAToolkit QUIET)
  find_package(ZtrainCudaLibraries QUIET)
endif()
if(ZTRAIN_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "ZTRAIN_CUDA needs the CUDA toolkit, and no nvcc was found: put it on PATH (module load cuda), "
      "or set CUDACXX to it.")
  endif()
  find_package(ZtrainCudaLibraries REQUIRED)
  if(NOT ZTRAIN_CUDNN_FRONTEND_INCLUDE)
    message(FATAL_ERROR "ZTRAIN_CUDA needs the headers of cudnn-frontend: tools/install_cuda_headers.sh fetches them, "
      "or set CUDNN_FRONTEND_ROOT.")
  endif()
  if(NOT ZTRAIN_KOKKOS_HAS_CUDA)
    message(FATAL_ERROR "ZTRAIN_CUDA needs a Kokkos that was built with CUDA, and the one found has none. Build Kokkos "
      "with Kokkos_ENABLE_CUDA=ON for the architecture of your GPUs (Kokkos_ARCH_HOPPER90, Kokkos_ARCH_AMPERE80), "
      "and set Kokkos_ROOT to where it is installed.")
  endif()
elseif(ZtrainCudaLibraries_FOUND)
  message(STATUS "CUDA ${CUDAToolkit_VERSION}: the sources that need the toolkit alone are compiled, for tests")
  if(NOT ZTRAIN_CUDNN_FRONTEND_INCLUDE)
    message(STATUS "cudnn-frontend not found: sources named *_cudnn_cuda.cpp are not compiled "
      "(tools/install_cuda_headers.sh fetches it)")
  endif()
endif()

# fmt 9's compile-time checks need constexpr functions, which fmt switches off for nvcc without cause. Two diagnostics are
# of no use: 1675 on pragmas for g++, 554 on views' conversions to const where they are const already.
set(ZTRAIN_CUDA_OPTIONS --extended-lambda --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 --diag-suppress=1675,554
  -Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas)
if(ZTRAIN_WERROR)
  list(APPEND ZTRAIN_CUDA_OPTIONS --Werror=all-warnings -Xcompiler=-Werror)
endif()

# Compiles the toolkit-only sources of a layer that the CPU build leaves out. Only tests that need no GPU link some of
# them, so they are optimised as little as can be.
function(ztrain_check_cuda_sources layer sources)
  if(ZTRAIN_CUDA OR NOT ZtrainCudaLibraries_FOUND OR NOT sources)
    return()
  endif()
  if(NOT ZTRAIN_CUDNN_FRONTEND_INCLUDE)
    list(FILTER sources EXCLUDE REGEX "_cudnn_cuda\\.cpp$")
  endif()
  if(sources)
    add_library(ztrain_${layer}_cuda_check OBJECT ${sources})
    target_include_directories(ztrain_${layer}_cuda_check PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_link_libraries(ztrain_${layer}_cuda_check PRIVATE ${ARGN} ztrain::cuda)
    ztrain_compile_options(ztrain_${layer}_cuda_check)
    ztrain_optimise(ztrain_${layer}_cuda_check 0)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      target_compile_options(ztrain_${layer}_cuda_check PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>)
    endif()
  endif()
endfunction()
