# The parts of the installed tree find each other by relative paths, so the tree may be moved as a whole.
include(CMakePackageConfigHelpers)
set(ZTRAIN_DATA_DIR ${CMAKE_INSTALL_DATADIR}/ztrain)
# Libraries outside of the system's folders are found where the build found them. No library of the tree itself is among them,
# because ztrain's layers and the libraries of ZTRAIN_FETCH are static.
set_target_properties(ztrain PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ztrain EXPORT ztrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(folder inputs slurm docs)
  install(DIRECTORY ${folder} DESTINATION ${ZTRAIN_DATA_DIR} USE_SOURCE_PERMISSIONS)
endforeach()
install(PROGRAMS tools/plot_run.py tools/prepare_data.py DESTINATION ${ZTRAIN_DATA_DIR}/tools OPTIONAL)
install(FILES tools/packages.py DESTINATION ${ZTRAIN_DATA_DIR}/tools)
install(DIRECTORY tools/prepare DESTINATION ${ZTRAIN_DATA_DIR}/tools FILES_MATCHING PATTERN "*.py")
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)

# find_package(ztrain) defines the executable as ztrain::ztrain, and sets ztrain_DATA_DIR.
install(EXPORT ztrain NAMESPACE ztrain:: FILE ztrain-targets.cmake DESTINATION ${ZTRAIN_DATA_DIR}/cmake)
configure_package_config_file(cmake/install/ztrain-config.cmake.in ${PROJECT_BINARY_DIR}/ztrain-config.cmake
  INSTALL_DESTINATION ${ZTRAIN_DATA_DIR}/cmake PATH_VARS ZTRAIN_DATA_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ztrain-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ztrain-config.cmake ${PROJECT_BINARY_DIR}/ztrain-config-version.cmake
  DESTINATION ${ZTRAIN_DATA_DIR}/cmake)

# The modulefile serves `module use PREFIX/share/modulefiles; module load ztrain`, in Environment Modules and in Lmod.
set(modules ${CMAKE_INSTALL_DATADIR}/modulefiles/ztrain)
file(RELATIVE_PATH ZTRAIN_UP /prefix/${modules} /prefix)
configure_file(cmake/install/modulefile.in ${PROJECT_BINARY_DIR}/modulefile @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/modulefile DESTINATION ${modules} RENAME ${PROJECT_VERSION})
