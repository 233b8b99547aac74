# ztrain_test(SOURCE [RANKS 1 2 4] [KOKKOS] [APART] [LABELS ...] [TIMEOUT s] [LINK ...])
# One source, one CTest entry per number of ranks. Without RANKS it runs without mpirun.
# KOKKOS: its main initialises the kernel backend (not together with RANKS).
# Each source is an executable named FOLDER_SOURCE, but where a clean build groups sources (ZTRAIN_UNITY): there those of
# a folder with the same main and the same LINK are one, of which an entry runs the tests of its source, and FOLDER_SOURCE
# is a target that builds it. So the tests of a source stand in a namespace named after it. APART keeps a source out of
# groups, for instance since it is compiled with definitions of its own.
# A Release build does not optimise tests, since most of their time goes to the libraries; those of kernels have references
# that compute much, and get -O2. Precompiled headers are shared by sources of one level and the same definitions.
# With the mpiexec of another MPI library each rank would be a job of its own.
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpiexec ERROR_VARIABLE mpiexec)
if(MPIEXEC_EXECUTABLE AND (mpiexec MATCHES "Open MPI|OpenRTE|PRRTE" AND NOT ZTRAIN_OPEN_MPI OR mpiexec MATCHES "HYDRA" AND ZTRAIN_OPEN_MPI))
  message(FATAL_ERROR "${MPIEXEC_EXECUTABLE} belongs to another MPI library than ${MPI_C_LIBRARIES}: name the right one by "
    "-DMPIEXEC_EXECUTABLE=FILE, or do without tests by -DZTRAIN_TESTS=OFF")
endif()
if(ZTRAIN_OPEN_MPI)
  set(ZTRAIN_MPIRUN ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none)
else()
  # MPICH's, and those of its descendants, start any number of ranks and bind none unless told to.
  set(ZTRAIN_MPIRUN ${MPIEXEC_EXECUTABLE})
endif()
# Open MPI looks for networks at each start, and starts a daemon for a process without mpirun, which takes half a second;
# tests stay on one machine and start hundreds of times. A rank that waits leaves its core to the tests beside it. Ranks that
# are told to end have ended: mpirun would wait a second or two for them, in each failing run.
set(ZTRAIN_TEST_ENVIRONMENT OMP_NUM_THREADS=1 OMPI_MCA_pml=ob1 OMPI_MCA_ess_singleton_isolated=1
  OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_odls_base_sigkill_timeout=0)
if(NOT ZTRAIN_OPEN_MPI)
  set(ZTRAIN_TEST_ENVIRONMENT OMP_NUM_THREADS=1)
endif()

# A test that waits nearly all of its time. CTest starts such tests first, and one after the other, so that others always compute
# beside them; at the end of all tests they would leave processors idle.
function(ztrain_patient_test test)
  set_tests_properties(${test} PROPERTIES COST 100 RESOURCE_LOCK patience)
endfunction()

# What a test runs with; behind it what else this one needs. Its mpirun keeps its files in a folder of its own: in a folder
# that all of a user's jobs share, the last to end removes what the next to start has just made.
function(ztrain_test_environment test)
  string(REPLACE "/" "_" folder ${test})
  set(folder ${PROJECT_BINARY_DIR}/sessions/${folder})
  file(MAKE_DIRECTORY ${folder})
  set_tests_properties(${test} PROPERTIES
    ENVIRONMENT "${ZTRAIN_TEST_ENVIRONMENT};OMPI_MCA_orte_tmpdir_base=${folder};${ARGN}")
endfunction()

# ztrain_libraries_of(VARIABLE targets...): ztrain's static libraries among these, and those that they link.
function(ztrain_libraries_of variable)
  set(found ${${variable}})
  foreach(target ${ARGN})
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" target "${target}")
    if(NOT target MATCHES "^ztrain_" OR target IN_LIST found)
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
    if(type STREQUAL STATIC_LIBRARY)
      list(APPEND found ${target})
    endif()
    if(links)
      ztrain_libraries_of(found ${links})
    endif()
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# Of an inline function or a template's that is in the test and in a library a linker takes the first: without this the test's,
# which is not optimised, for the library's calls too. (It made tests of Programs half as fast.) A folder whose tests have sources
# in place of libraries' own, or only some of them, says so by ZTRAIN_TESTS_REPLACE.
function(ztrain_link_libraries_first target)
  if(ZTRAIN_CUDA OR ZTRAIN_TESTS_REPLACE)
    return()
  endif()
  set(libraries)
  ztrain_libraries_of(libraries ${ARGN})
  list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  list(JOIN libraries "," files)
  target_link_options(${target} PRIVATE $<$<CONFIG:Release>:LINKER:--whole-archive,${files},--no-whole-archive>)
endfunction()

# An executable of tests, whose sources come later.
function(ztrain_test_executable target kokkos ranks link)
  add_executable(${target})
  ztrain_compile_options(${target})
  if(kokkos)
    ztrain_optimise(${target} 2)
    target_precompile_headers(${target} REUSE_FROM ztrain_test_kokkos_main)
    set(main ztrain_test_kokkos_main)
  else()
    ztrain_optimise(${target} 0)
    target_precompile_headers(${target} REUSE_FROM ztrain_test_one_source)
    set(main $<IF:$<BOOL:${ranks}>,ztrain_test_mpi_main,ztrain_test_main>)
  endif()
  target_link_libraries(${target} PRIVATE ${link} ${main})
  ztrain_link_libraries_first(${target} ${link})
endfunction()

# The command that runs the tests of a source without mpirun, once ztrain_test has declared it.
function(ztrain_test_command variable folder stem)
  get_property(command GLOBAL PROPERTY ztrain_test_command_${folder}_${stem})
  set(${variable} ${command} PARENT_SCOPE)
endfunction()

function(ztrain_test source)
  cmake_parse_arguments(ARG "KOKKOS;APART" "TIMEOUT" "RANKS;LABELS;LINK" ${ARGN})
  get_filename_component(stem ${source} NAME_WE)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(target ${folder}_${stem})
  set(command ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}>)
  if(ZTRAIN_UNITY AND NOT ZTRAIN_CUDA AND NOT ARG_APART)
    string(REGEX REPLACE "(;|^)ztrain(_|::)" "_" linked "${ARG_LINK}")
    set(target ${folder}_group${linked})
    if(ARG_KOKKOS)
      string(APPEND target _backend)
    endif()
    set(command ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}> --source=${source})
    add_custom_target(${folder}_${stem} DEPENDS ${target})
  endif()
  if(NOT TARGET ${target})
    ztrain_test_executable(${target} "${ARG_KOKKOS}" "${ARG_RANKS}" "${ARG_LINK}")
    ztrain_group_sources(${target})
  endif()
  target_sources(${target} PRIVATE ${source})
  set_property(GLOBAL PROPERTY ztrain_test_command_${folder}_${stem} ${command})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(ARG_RANKS)
    foreach(n ${ARG_RANKS})
      # More ranks than this share the processors of small machines in any case: alone on all of them they end no sooner.
      set(processors ${n})
      if(n GREATER 4)
        set(processors 4)
      endif()
      add_test(NAME ${folder}/${stem}/np${n} COMMAND ${ZTRAIN_MPIRUN} -np ${n} ${command}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${folder}/${stem}/np${n} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${processors}
        LABELS "${folder};${ARG_LABELS}")
      ztrain_test_environment(${folder}/${stem}/np${n})
    endforeach()
  else()
    add_test(NAME ${folder}/${stem} COMMAND ${command} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${folder}/${stem} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${folder};${ARG_LABELS}")
    ztrain_test_environment(${folder}/${stem})
  endif()
endfunction()

# A test of its own executable whose run with one rank leaves what it computes in files for those with more ranks.
function(ztrain_one_rank_first stem)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  target_compile_definitions(${folder}_${stem} PRIVATE ZTRAIN_TEST_FOLDER="${CMAKE_CURRENT_BINARY_DIR}")
  set_tests_properties(${folder}/${stem}/np1 PROPERTIES FIXTURES_SETUP ${stem}_single_rank)
  foreach(n ${ARGN})
    set_tests_properties(${folder}/${stem}/np${n} PROPERTIES FIXTURES_REQUIRED ${stem}_single_rank)
  endforeach()
endfunction()
