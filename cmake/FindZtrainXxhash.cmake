# Finds xxhash and provides ztrain::xxhash. The header has all of xxhash, so the library is not linked.
find_path(ZTRAIN_XXHASH_INCLUDE xxhash.h HINTS ${xxhash_ROOT} ENV xxhash_ROOT PATH_SUFFIXES include)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ZtrainXxhash REQUIRED_VARS ZTRAIN_XXHASH_INCLUDE)
if(ZtrainXxhash_FOUND AND NOT TARGET ztrain::xxhash)
  add_library(ztrain_xxhash INTERFACE)
  add_library(ztrain::xxhash ALIAS ztrain_xxhash)
  target_include_directories(ztrain_xxhash SYSTEM INTERFACE ${ZTRAIN_XXHASH_INCLUDE})
endif()
