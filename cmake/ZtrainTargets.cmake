# ztrain_layer(NAME [BOOKKEEPING] [APART] [EXCEPT rooms...] [OF_OPS prefix] [TABLES sources...] [LINK targets...]): one library per layer,
# from all sources of its folder and the rooms in it. Where CPU and GPU differ, a source is chosen by its name: *_cpu.cpp for CPU builds;
# *_cuda.cpp and *.cu, which need the CUDA toolkit alone, for CUDA builds.
# BOOKKEEPING: no loops over data in it, so that -O1 is enough.
# APART: each source is compiled alone in every build.
# EXCEPT: rooms whose sources are other libraries'.
# OF_OPS: it has those sources of the ops' folders, too, whose names begin so: kernels/NAME/rules*.cpp or binding*.cpp.
# TABLES: sources with tables to which others add rows (tests/additions).
set(ZTRAIN_WARNINGS -Wall -Wextra -Wshadow -Wno-unknown-pragmas)
if(ZTRAIN_WERROR)
  list(APPEND ZTRAIN_WARNINGS -Werror)
endif()

function(ztrain_compile_options target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${ZTRAIN_WARNINGS}>
    "$<$<COMPILE_LANGUAGE:CUDA>:${ZTRAIN_CUDA_OPTIONS}>")
  if(ZTRAIN_NATIVE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
  if(ZTRAIN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-omit-frame-pointer)
    target_compile_definitions(${target} PRIVATE ZTRAIN_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
endfunction()

# The level at which a Release build optimises the target's C++, where CMake's 3 does not pay for the time it takes.
function(ztrain_optimise target level)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O${level}>)
endfunction()

# Lets a clean build of the target compile its sources in groups (ZTRAIN_UNITY): headers are read once a group, and what
# their templates and inline functions become is generated once. CMake 3.25 groups no sources in CUDA's language, and
# those of a CUDA build keep to themselves altogether.
function(ztrain_group_sources target)
  if(ZTRAIN_UNITY AND NOT ZTRAIN_CUDA)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${ZTRAIN_UNITY_SOURCES})
  endif()
endfunction()

function(ztrain_layer name)
  cmake_parse_arguments(ARG "BOOKKEEPING;APART" "OF_OPS" "EXCEPT;LINK;TABLES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_cuda.cpp ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  if(ARG_OF_OPS)
    file(GLOB_RECURSE of_ops CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/${ARG_OF_OPS}*.cpp)
    list(APPEND sources ${of_ops})
  else()
    list(FILTER sources EXCLUDE REGEX "/kernels/.*/(rules|binding)[^/]*$")
  endif()
  foreach(room ${ARG_EXCEPT})
    foreach(source ${sources})
      string(FIND ${source} ${CMAKE_CURRENT_SOURCE_DIR}/${room}/ place)
      if(place EQUAL 0)
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
  endforeach()
  if(ZTRAIN_CUDA)
    list(FILTER sources EXCLUDE REGEX "_cpu\\.cpp$")
    file(GLOB_RECURSE more ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
    list(APPEND sources ${more})
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
    ztrain_check_cuda_sources(${name} "${cuda_sources}" ${ARG_LINK})
  endif()
  if(sources)
    add_library(ztrain_${name} STATIC ${sources})
    target_include_directories(ztrain_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_link_libraries(ztrain_${name} PUBLIC ${ARG_LINK})
    ztrain_compile_options(ztrain_${name})
    if(ARG_BOOKKEEPING)
      ztrain_optimise(ztrain_${name} 1)
    endif()
    if(NOT ARG_APART)
      ztrain_group_sources(ztrain_${name})
      # What a build or a test may replace by another source is left out of groups: a linker takes a group as a whole.
      list(FILTER sources INCLUDE REGEX "_cpu\\.cpp$")
      set_source_files_properties(${sources} ${ARG_TABLES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  else()
    add_library(ztrain_${name} INTERFACE)
    target_include_directories(ztrain_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_link_libraries(ztrain_${name} INTERFACE ${ARG_LINK})
  endif()
endfunction()

# ztrain_list_ops(FILE PREFIX MORE...): writes a line ZTRAIN_FOLDER(NAME) for each source of the folders of kernels, and of MORE,
# whose name begins with the prefix: rules.cpp of kernels/rope makes "rope", rules_split.cpp of kernels/head "head_split".
function(ztrain_list_ops file prefix)
  set(text "")
  file(GLOB folders LIST_DIRECTORIES true CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*)
  foreach(folder ${folders} ${ARGN})
    get_filename_component(name ${folder} NAME)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/${prefix}*.cpp)
    foreach(source ${sources})
      get_filename_component(part ${source} NAME_WE)
      string(REPLACE ${prefix} ${name} part ${part})
      string(APPEND text "ZTRAIN_FOLDER(${part})\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}")
endfunction()
