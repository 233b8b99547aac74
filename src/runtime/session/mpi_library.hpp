#pragma once
// Names the MPI library. This is no part of mpi_check.hpp, which nearly every device-side file includes.

#include <mpi.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace ztrain::runtime {

/// Returns the name and version that the MPI library gives itself, such as "Open MPI v4.1.4" or "MPICH
/// Version: 4.0.2". MPI need not have started.
inline std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string_view all(text);
  std::string name(all.substr(0, all.find_first_of(",\n(")));
  std::ranges::replace(name, '\t', ' ');
  name.erase(std::ranges::unique(name, [](char a, char b) { return a == ' ' && b == ' '; }).begin(),
             name.end());
  return name.substr(0, name.find_last_not_of(' ') + 1);
}

}  // namespace ztrain::runtime
