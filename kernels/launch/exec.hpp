#pragma once
// Starts the kernel backend of the process, and declares the execution-space instances that kernels run on.
// Exec is opaque, so that Kokkos stays out of this header.

#include <memory>

namespace ztrain::kernels {

/// Holds one Kokkos execution-space instance; its definition is in kernels/launch/exec_kokkos.hpp. Kernels on
/// one Exec run in issue order; on a GPU they return before they finish.
struct Exec;

/// The cudaStream_t that its kernels run on; null on CPUs.
void* native_stream(const Exec& exec);

/// The matrix products of an Exec share it. It is null until gemm_library() makes it
/// (kernels/gemm/gemm_library.hpp).
struct GemmLibrary;
std::shared_ptr<GemmLibrary>& gemm_library_slot(Exec& exec);

/// The attention library's handle and plans, which the ops of an Exec share. Empty until the first of them is
/// prepared, and always on CPUs; it goes with the Exec.
struct AttentionPlans;
std::shared_ptr<AttentionPlans>& attention_plans(Exec& exec);

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
