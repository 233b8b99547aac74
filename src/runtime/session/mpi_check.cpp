#include "runtime/session/mpi_check.hpp"

#include <mpi.h>

#include "base/error.hpp"

namespace ztrain::runtime {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error code {}", code);
  return std::string(text, static_cast<std::size_t>(length));
}

void check_mpi(int code, const char* call) {
  REQUIRE(code == MPI_SUCCESS, "{} failed: {}", call, mpi_error_text(code));
}

}  // namespace ztrain::runtime
