#pragma once
// Checked MPI calls.

#include <mpi.h>

#include <string>

#include "base/error.hpp"

namespace ztrain::runtime {

/// Returns MPI's own text for an error code.
inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error code {}", code);
  return std::string(text, static_cast<std::size_t>(length));
}

/// Throws Error naming the call and MPI's error string unless code is MPI_SUCCESS.
inline void check_mpi(int code, const char* call) {
  REQUIRE(code == MPI_SUCCESS, "{} failed: {}", call, mpi_error_text(code));
}

}  // namespace ztrain::runtime
