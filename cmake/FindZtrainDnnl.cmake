# Finds oneDNN and provides ztrain::dnnl. Debian's exported target asks for OpenCL's development files, which nothing
# here needs, so the header and the library are looked up by hand.
if(NOT TARGET ztrain::dnnl)
  find_path(ZTRAIN_DNNL_INCLUDE oneapi/dnnl/dnnl.h)
  find_library(ZTRAIN_DNNL_LIBRARY NAMES dnnl)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(ZtrainDnnl REQUIRED_VARS ZTRAIN_DNNL_LIBRARY ZTRAIN_DNNL_INCLUDE
    REASON_FAILURE_MESSAGE "install libdnnl-dev, or set ZtrainDnnl_ROOT or CMAKE_PREFIX_PATH to an installed oneDNN")
  if(ZtrainDnnl_FOUND)
    add_library(ztrain_dnnl INTERFACE)
    add_library(ztrain::dnnl ALIAS ztrain_dnnl)
    target_include_directories(ztrain_dnnl SYSTEM INTERFACE ${ZTRAIN_DNNL_INCLUDE})
    target_link_libraries(ztrain_dnnl INTERFACE ${ZTRAIN_DNNL_LIBRARY})
  endif()
endif()
