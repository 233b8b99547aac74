# Finds HDF5 by CMake's own module (HDF5_ROOT, HDF5_PREFER_PARALLEL) and provides ztrain::hdf5. Every rank writes files of its
# own and none uses MPI-IO, so a serial HDF5 serves as well as a parallel one. A parallel HDF5 loads the MPI library that it was
# built with. Two MPI libraries in one process do not work, so an HDF5 of another MPI library counts as not found.
find_package(HDF5 QUIET COMPONENTS C)
include(FindPackageHandleStandardArgs)

# The number behind ".so" tells libraries of MPI apart: 40 is Open MPI's, and 12 that of MPICH and its descendants.
function(ztrain_mpi_number variable file tag)
  execute_process(COMMAND ${CMAKE_READELF} -d ${file} OUTPUT_VARIABLE entries ERROR_QUIET)
  string(REGEX MATCH "\\(${tag}\\)[^\n]*\\[libmpi[a-z_]*[0-9_]*\\.so\\.([0-9]+)\\]" found "${entries}")
  set(${variable} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# A shared HDF5 loads the libraries that it needs; the list also has those that a static HDF5 would need.
set(libraries ${HDF5_C_LIBRARIES})
list(FILTER libraries INCLUDE REGEX "/libhdf5[^/]*\\.so[.0-9]*$")
if(NOT libraries)
  set(libraries ${HDF5_C_LIBRARIES})
endif()
set(ZtrainHdf5_FITS TRUE)
if(HDF5_FOUND AND HDF5_IS_PARALLEL AND MPI_C_LIBRARIES)
  list(GET libraries 0 file)
  list(GET MPI_C_LIBRARIES 0 mpi)
  if(TARGET ${file})
    get_target_property(file ${file} LOCATION)
  endif()
  ztrain_mpi_number(needed ${file} NEEDED)
  ztrain_mpi_number(given ${mpi} SONAME)
  if(needed AND given AND NOT needed STREQUAL given)
    set(ZtrainHdf5_FITS FALSE)
    set(ZTRAIN_HDF5_MISFIT "; ${file} was built with another MPI than ${mpi}")
  endif()
endif()
find_package_handle_standard_args(ZtrainHdf5 REQUIRED_VARS HDF5_FOUND ZtrainHdf5_FITS)
if(ZtrainHdf5_FOUND AND NOT TARGET ztrain::hdf5)
  add_library(ztrain_hdf5 INTERFACE)
  add_library(ztrain::hdf5 ALIAS ztrain_hdf5)
  target_include_directories(ztrain_hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
  target_link_libraries(ztrain_hdf5 INTERFACE ${libraries})
  if(HDF5_IS_PARALLEL)
    target_link_libraries(ztrain_hdf5 INTERFACE MPI::MPI_C) # its header includes mpi.h
  endif()
endif()
