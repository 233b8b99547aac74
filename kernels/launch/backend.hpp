#pragma once
// The process's kernel backend: Kokkos and the threads of the matrix-product library.

#include <memory>

#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Initialises Kokkos and sets one thread per rank for library kernels. A second call does nothing. Call it
/// after MPI_Init and before any make_exec or kernel, on GPUs after the device was chosen (cudaSetDevice).
void initialize_backend();

/// A part of it. Ranks, not threads, fill the cores: a library that starts one thread per core in every rank
/// only oversubscribes. On GPUs there are none.
void use_one_library_thread();

/// Finalises Kokkos if initialize_backend initialised it; every Exec must be gone. A second call does
/// nothing, and the backend cannot be initialised again in this process.
void finalize_backend();

struct ExecDeleter {
  void operator()(Exec* exec) const;
};
using ExecHandle = std::unique_ptr<Exec, ExecDeleter>;

/// A new execution-space instance; on GPUs it runs on `stream` (a cudaStream_t, which must outlive it; null:
/// the default stream). Throws Error when the backend is not initialised.
ExecHandle make_exec(void* stream = nullptr);

}  // namespace ztrain::kernels
