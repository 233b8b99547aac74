# ztrain_test(SOURCE [RANKS 1 2 4] [KOKKOS] [LABELS ...] [TIMEOUT s] [LINK ...])
# One source, one executable, one CTest entry per number of ranks. Without RANKS it runs without mpirun.
# KOKKOS: its main initialises the kernel backend (not together with RANKS).
# A Release build gives tests -O1, since most of their time goes to the libraries; those of kernels have references that
# compute much, and get -O2. Precompiled headers are shared by sources of one level and the same definitions.
find_package(GTest REQUIRED)
set(ZTRAIN_MPIRUN ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none)

function(ztrain_test source)
  cmake_parse_arguments(ARG "KOKKOS" "TIMEOUT" "RANKS;LABELS;LINK" ${ARGN})
  get_filename_component(stem ${source} NAME_WE)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(target ${folder}_${stem})
  add_executable(${target} ${source})
  ztrain_compile_options(${target})
  if(ARG_KOKKOS)
    ztrain_optimise(${target} 2)
    target_precompile_headers(${target} REUSE_FROM ztrain_test_kokkos_main)
  else()
    ztrain_optimise(${target} 1)
    target_precompile_headers(${target} REUSE_FROM ztrain_test_headers)
  endif()
  target_link_libraries(${target} PRIVATE ${ARG_LINK} GTest::gtest)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(ARG_RANKS)
    target_link_libraries(${target} PRIVATE ztrain_test_mpi_main)
    foreach(n ${ARG_RANKS})
      add_test(NAME ${folder}/${stem}/np${n}
        COMMAND ${ZTRAIN_MPIRUN} -np ${n} $<TARGET_FILE:${target}>
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${folder}/${stem}/np${n} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${n}
        LABELS "${folder};${ARG_LABELS}" ENVIRONMENT "OMP_NUM_THREADS=1")
    endforeach()
  else()
    target_link_libraries(${target} PRIVATE $<IF:$<BOOL:${ARG_KOKKOS}>,ztrain_test_kokkos_main,GTest::gtest_main>)
    add_test(NAME ${folder}/${stem} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${folder}/${stem} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${folder};${ARG_LABELS}"
      ENVIRONMENT "OMP_NUM_THREADS=1")
  endif()
endfunction()
