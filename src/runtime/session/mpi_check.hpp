#pragma once
// Checked MPI calls.

#include <string>

namespace ztrain::runtime {

/// MPI's own text for an error code.
std::string mpi_error_text(int code);

/// Throws Error naming the call and MPI's error string unless code is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace ztrain::runtime
