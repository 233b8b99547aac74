# ztrain_test_driver: a libcuda.so.1 that does nothing (make_driver.py), for tests that make cuDNN compile where there is no
# GPU. It lies in a folder of its own, and only what calls ztrain_use_test_driver finds it; where it cannot be made there is
# no such target.
include_guard(GLOBAL)
find_library(ZTRAIN_DRIVER_STUB cuda NO_DEFAULT_PATH
  HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT}
  PATH_SUFFIXES stubs lib64/stubs lib/stubs)
find_program(ZTRAIN_PYTHON NAMES /usr/bin/python3 python3 REQUIRED)
if(NOT ZTRAIN_DRIVER_STUB OR NOT CMAKE_NM)
  message(STATUS "The toolkit's stub of libcuda or binutils' nm is not here: cuDNN's plans are not tested")
  return()
endif()
message(STATUS "cuDNN's plans are tested without a GPU, on a driver library made from ${ZTRAIN_DRIVER_STUB}")

set(source ${CMAKE_CURRENT_BINARY_DIR}/driver/driver.cpp)
set(script ${PROJECT_SOURCE_DIR}/tests/support/make_driver.py)
set(version ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR})
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/driver)
add_custom_command(OUTPUT ${source}
  COMMAND ${ZTRAIN_PYTHON} ${script} ${CMAKE_NM} ${ZTRAIN_DRIVER_STUB} ${version} ${source}
  DEPENDS ${script} ${ZTRAIN_DRIVER_STUB} VERBATIM)
add_library(ztrain_test_driver SHARED ${source})
# The toolkit's names, of which the compiler knows some by heart.
set_target_properties(ztrain_test_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1 UNITY_BUILD OFF
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/driver)

# The executable loads it before cuDNN asks for libcuda.so.1, and even where LD_LIBRARY_PATH names a real one: from the folder
# beside it, wherever both were copied.
function(ztrain_use_test_driver target)
  target_link_libraries(${target} PRIVATE -Wl,--no-as-needed ztrain_test_driver -Wl,--as-needed ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES BUILD_RPATH_USE_ORIGIN ON)
endfunction()
