# A build links more than a hundred executables, one a test. The linkers named here take a third of the time that GNU's
# does, so the first that is there is used, unless the linker was chosen by hand (CMAKE_EXE_LINKER_FLAGS=-fuse-ld=...).
include(CheckLinkerFlag)
if(NOT ZTRAIN_CUDA AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld=")
  foreach(linker mold lld gold)
    check_linker_flag(CXX -fuse-ld=${linker} ZTRAIN_LINKS_WITH_${linker})
    if(ZTRAIN_LINKS_WITH_${linker})
      add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=${linker}>)
      break()
    endif()
  endforeach()
endif()
