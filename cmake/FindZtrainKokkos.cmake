# Finds an installed Kokkos and provides ztrain::kokkos.
#
# A Kokkos from Spack or a site module exports Kokkos::kokkos. Debian's, which comes from Trilinos, exports a target
# whose include folder does not exist, so there the header and the library are looked up by hand. The headers are
# SYSTEM: their warnings are not ours.
if(NOT TARGET ztrain::kokkos)
  add_library(ztrain_kokkos INTERFACE)
  add_library(ztrain::kokkos ALIAS ztrain_kokkos)
  if(Kokkos_ROOT OR DEFINED ENV{Kokkos_ROOT})
    find_package(Kokkos QUIET CONFIG)
  endif()
  if(TARGET Kokkos::kokkos)
    target_link_libraries(ztrain_kokkos INTERFACE Kokkos::kokkos)
    set(ZtrainKokkos_FOUND TRUE)
  else()
    find_path(ZTRAIN_KOKKOS_INCLUDE Kokkos_Core.hpp PATH_SUFFIXES trilinos kokkos)
    find_library(ZTRAIN_KOKKOS_CORE NAMES trilinos_kokkoscore kokkoscore)
    include(FindPackageHandleStandardArgs)
    find_package_handle_standard_args(ZtrainKokkos
      REQUIRED_VARS ZTRAIN_KOKKOS_CORE ZTRAIN_KOKKOS_INCLUDE
      REASON_FAILURE_MESSAGE "install libtrilinos-kokkos-dev, or set Kokkos_ROOT to an installed Kokkos")
    if(ZtrainKokkos_FOUND)
      target_include_directories(ztrain_kokkos SYSTEM INTERFACE ${ZTRAIN_KOKKOS_INCLUDE})
      target_link_libraries(ztrain_kokkos INTERFACE ${ZTRAIN_KOKKOS_CORE} ${CMAKE_DL_LIBS})
    endif()
  endif()
endif()
