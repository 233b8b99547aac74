# Fetches small libraries, for sites that lack them and let CMake download while it configures (ZTRAIN_FETCH). Each is fixed
# by its commit. If its sources are there already, FETCHCONTENT_SOURCE_DIR_<NAME> names their folder; the name is FMT, for example.
include(FetchContent)

# ztrain_fetch_sources(NAME REPOSITORY COMMIT [TARGET]): adds the library that the sources build. Its headers give no
# warnings. Without TARGET nothing is built.
function(ztrain_fetch_sources name repository commit)
  set(BUILD_SHARED_LIBS OFF)
  set(INSTALL_GTEST OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW) # the sources' own options take these values
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5) # CMake 4 refuses sources that ask for less
  message(STATUS "Fetching ${name} (${repository})")
  if(ARGN)
    FetchContent_Declare(${name} GIT_REPOSITORY https://github.com/${repository}.git GIT_TAG ${commit})
  else()
    FetchContent_Declare(${name} GIT_REPOSITORY https://github.com/${repository}.git GIT_TAG ${commit} SOURCE_SUBDIR none)
  endif()
  FetchContent_MakeAvailable(${name})
  set(${name}_SOURCE_DIR ${${name}_SOURCE_DIR} PARENT_SCOPE)
  if(ARGN)
    set_property(DIRECTORY ${${name}_SOURCE_DIR} PROPERTY EXCLUDE_FROM_ALL TRUE) # except targets that are linked
  endif()
  foreach(target ${ARGN})
    get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
    set_target_properties(${target} PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${folders}")
  endforeach()
endfunction()

# Makes the target that find_package(PACKAGE) would have found, if the package is one of these libraries.
macro(ztrain_fetch package)
  if(ZTRAIN_FETCH)
    set(${package}_FOUND TRUE)
    if(${package} STREQUAL fmt)
      ztrain_fetch_sources(fmt fmtlib/fmt a33701196adfad74917046096bf5a2aa0ab0bb50 fmt) # 9.1.0
    elseif(${package} STREQUAL nlohmann_json)
      ztrain_fetch_sources(json nlohmann/json bc889afb4c5bf1c0d8ee29ef35eaaf4c8bef8a5d nlohmann_json) # 3.11.2
    elseif(${package} STREQUAL tomlplusplus)
      ztrain_fetch_sources(tomlplusplus marzer/tomlplusplus c635f218c0aefc801d9748841930365e54fe3089
        tomlplusplus_tomlplusplus) # 3.3.0
    elseif(${package} STREQUAL yaml-cpp)
      ztrain_fetch_sources(yaml_cpp jbeder/yaml-cpp 0579ae3d976091d7d664aa9d2527e0d0cff25763 yaml-cpp) # 0.7.0
    elseif(${package} STREQUAL CLI11)
      ztrain_fetch_sources(cli11 CLIUtils/CLI11 291c58789c031208f08f4f261a858b5b7083e8e2 CLI11) # 2.3.2
    elseif(${package} STREQUAL ZtrainXxhash)
      ztrain_fetch_sources(xxhash Cyan4973/xxHash 35b0373c697b5f160d3db26b1cbb45a0d5ba788c) # 0.8.1
      set(ZTRAIN_XXHASH_INCLUDE ${xxhash_SOURCE_DIR})
      find_package(ZtrainXxhash QUIET)
    elseif(${package} STREQUAL GTest)
      ztrain_fetch_sources(googletest google/googletest 58d77fa8070e8cec2dc1ed015d66b454c8d78850 gtest) # 1.12.1
    else()
      set(${package}_FOUND FALSE)
    endif()
  endif()
endmacro()
