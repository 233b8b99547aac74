#pragma once
// The execution-space instance a kernel runs on, opaque here so that Kokkos stays out of this header.

#include <memory>

namespace ztrain::kernels {

/// Holds one Kokkos execution-space instance; its definition is in kernels/launch/exec_kokkos.hpp. Kernels on
/// one Exec run in issue order; on a GPU they return before they finish.
struct Exec;

/// The cudaStream_t that its kernels run on; null on CPUs.
void* native_stream(const Exec& exec);

/// What the matrix products of an Exec share. Null until gemm_library() makes it
/// (kernels/gemm/gemm_library.hpp).
struct GemmLibrary;
std::shared_ptr<GemmLibrary>& gemm_library_slot(Exec& exec);

/// The attention library's handle and plans, which the ops of an Exec share. Empty until the first of them is
/// prepared, and always on CPUs; it goes with the Exec.
struct AttentionPlans;
std::shared_ptr<AttentionPlans>& attention_plans(Exec& exec);

}  // namespace ztrain::kernels
