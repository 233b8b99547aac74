#pragma once
// Kernels of libraries, loaded before the steps. CUDA_MODULE_LOADING=EAGER loads this program's kernels when
// CUDA starts, but cuBLASLt and cuDNN load some of theirs at the first launch, which may wait until the GPU
// is idle. Within a step it would wait for a collective of NCCL's, whose other ranks wait for this one.

#include <vector>

#include "engine/job_memory.hpp"
#include "engine/queues.hpp"
#include "program/ir/program.hpp"
#include "runtime/comm/mesh_comms.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::engine {

/// Collective. Launches each distinct product and attention of the Programs once, and waits for it.
/// Afterwards the memory of the device's tier is zero, as it was allocated. Call it before anything is
/// written there, and after the algorithms of products are known. Does nothing on CPU ranks. Throws
/// AgreedError if a launch fails.
void load_library_kernels(const runtime::Session& session,
                          const std::vector<const program::Program*>& programs, const JobMemory& memory,
                          runtime::Mesh& mesh, Queues& queues);

}  // namespace ztrain::engine
