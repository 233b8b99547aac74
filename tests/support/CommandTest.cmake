# ztrain_command_test(NAME [PATIENT] [ANY_LAUNCHER] [TIMEOUT s] [EXECUTABLE target]): NAME.py of the calling folder drives the
# executable, or another that takes its commands; see support/ztrain_run.py. It is one of the processes that CTest counts whatever it
# starts: runs are short, and of the time from start to end a processor is needed for about half.
# PATIENT: it waits nearly all of the time; see ztrain_patient_test.
# ANY_LAUNCHER: it knows of ranks what they print and write, and so slurm/regression.sh runs it on the nodes of a cluster too.
# h5py belongs to Debian's Python, which is looked for before any other that comes first in PATH.
include_guard(GLOBAL)
find_program(ZTRAIN_PYTHON NAMES /usr/bin/python3 python3 REQUIRED)

function(ztrain_command_test name)
  cmake_parse_arguments(ARG "PATIENT;ANY_LAUNCHER" "TIMEOUT;EXECUTABLE" "" ${ARGN})
  if(NOT ARG_EXECUTABLE)
    set(ARG_EXECUTABLE ztrain)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(labels ${folder} command)
  if(ARG_ANY_LAUNCHER)
    list(APPEND labels any-launcher)
  endif()
  list(JOIN ZTRAIN_MPIRUN " " launcher)
  add_test(NAME ${folder}/${name} COMMAND ${ZTRAIN_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/${name}.py)
  set_tests_properties(${folder}/${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${labels}")
  ztrain_test_environment(${folder}/${name} ZTRAIN=$<TARGET_FILE:${ARG_EXECUTABLE}> ZTRAIN_MPIRUN=${launcher}
    ZTRAIN_SOURCE=${PROJECT_SOURCE_DIR} PYTHONPATH=${PROJECT_SOURCE_DIR}/tests/support)
  if(ARG_PATIENT)
    ztrain_patient_test(${folder}/${name})
  endif()
endfunction()
