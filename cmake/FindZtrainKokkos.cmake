# Finds an installed Kokkos and provides ztrain::kokkos.
#
# A Kokkos from Spack or a site module exports Kokkos::kokkos. Debian's, which comes from Trilinos, exports a target
# whose include folder does not exist, so there the header and the library are looked up by hand. The headers are
# SYSTEM: their warnings are not ours.
if(NOT TARGET ztrain::kokkos)
  add_library(ztrain_kokkos INTERFACE)
  add_library(ztrain::kokkos ALIAS ztrain_kokkos)
  # Kept, so that a later configuration finds the same one.
  if(NOT Kokkos_ROOT AND DEFINED ENV{Kokkos_ROOT})
    set(Kokkos_ROOT "$ENV{Kokkos_ROOT}" CACHE PATH "Folder of an installed Kokkos" FORCE)
  endif()
  # Otherwise a Kokkos that was built with nvcc_wrapper makes nvcc_wrapper compile ztrain's C++ too, for GPUs that nobody named.
  set(Kokkos_LAUNCH_COMPILER OFF)
  find_package(Kokkos QUIET CONFIG)
  set(exported exported-NOTFOUND)
  foreach(target Kokkos::kokkoscore Kokkos::kokkos)
    if(TARGET ${target})
      get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
      find_file(exported Kokkos_Core.hpp PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
    endif()
  endforeach()
  if(TARGET Kokkos::kokkoscore AND Kokkos_ENABLE_CUDA)
    # Its flags depend on how Kokkos was built (nvcc_wrapper, clang, CMake's CUDA); ours come from ZtrainCuda.cmake.
    set(ZTRAIN_KOKKOS_HAS_CUDA TRUE)
    target_include_directories(ztrain_kokkos SYSTEM INTERFACE
      $<TARGET_PROPERTY:Kokkos::kokkoscore,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(ztrain_kokkos INTERFACE $<TARGET_FILE:Kokkos::kokkoscore> ztrain_driver_functions
      ${CMAKE_DL_LIBS})
    set(ZtrainKokkos_FOUND TRUE)
  elseif(exported)
    target_link_libraries(ztrain_kokkos INTERFACE Kokkos::kokkos)
    set(ZtrainKokkos_FOUND TRUE)
  else()
    find_path(ZTRAIN_KOKKOS_INCLUDE Kokkos_Core.hpp HINTS ${Kokkos_ROOT} PATH_SUFFIXES include trilinos kokkos)
    find_library(ZTRAIN_KOKKOS_CORE NAMES trilinos_kokkoscore kokkoscore HINTS ${Kokkos_ROOT} PATH_SUFFIXES lib lib64)
    include(FindPackageHandleStandardArgs)
    find_package_handle_standard_args(ZtrainKokkos
      REQUIRED_VARS ZTRAIN_KOKKOS_CORE ZTRAIN_KOKKOS_INCLUDE)
    if(ZtrainKokkos_FOUND)
      target_include_directories(ztrain_kokkos SYSTEM INTERFACE ${ZTRAIN_KOKKOS_INCLUDE})
      target_link_libraries(ztrain_kokkos INTERFACE ${ZTRAIN_KOKKOS_CORE} ${CMAKE_DL_LIBS})
    endif()
  endif()
endif()
