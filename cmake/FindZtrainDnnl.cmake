# Finds oneDNN and provides ztrain::dnnl. Debian's exported target asks for OpenCL's development files, which nothing
# here needs, so the header and the library are looked up by hand.
if(NOT TARGET ztrain::dnnl)
  find_path(ZTRAIN_DNNL_INCLUDE oneapi/dnnl/dnnl.h HINTS ${dnnl_ROOT} ENV dnnl_ROOT ENV DNNLROOT PATH_SUFFIXES include)
  find_library(ZTRAIN_DNNL_LIBRARY NAMES dnnl HINTS ${dnnl_ROOT} ENV dnnl_ROOT ENV DNNLROOT PATH_SUFFIXES lib lib64)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(ZtrainDnnl REQUIRED_VARS ZTRAIN_DNNL_LIBRARY ZTRAIN_DNNL_INCLUDE)
  if(ZtrainDnnl_FOUND)
    add_library(ztrain_dnnl INTERFACE)
    add_library(ztrain::dnnl ALIAS ztrain_dnnl)
    target_include_directories(ztrain_dnnl SYSTEM INTERFACE ${ZTRAIN_DNNL_INCLUDE})
    target_link_libraries(ztrain_dnnl INTERFACE ${ZTRAIN_DNNL_LIBRARY})
  endif()
endif()
