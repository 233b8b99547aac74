#pragma once
// How matrix products are done, over the ranks of a job: some measure, all ranks do the same. On GPUs the
// library's algorithms, on CPUs, by rank 0's model, which instructions multiply bf16 and fp32. And the kind
// of processor, which shows in the last bits as well.

#include <string>

#include "config/deck.hpp"
#include "job/progress.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/launch/exec.hpp"
#include "layout/mesh.hpp"
#include "runtime/device/device.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

/// Throws Error where device.bf16_products or device.fp32_products asks for what this processor has not.
/// Nothing on GPUs.
void require_products(const config::Device& options);

/// Whether a rank measures products: the first of those of one place in the pipeline and over `tensor`, which
/// have the same.
bool measures(const Coordinate& rank);

/// Collective, before ops are bound: the products of `exec` compute as [device] of the deck says, with the
/// algorithms of its file, as rank 0 reads it. What the file does not know is measured where ops are bound,
/// by one rank of each part of the model: the first in all axes but pipeline and tensor. Ranks whose GPU is
/// of a model that none of these has use what the file has for it, else the library's first proposals. Throws
/// Error where device.bf16_products or device.fp32_products asks for what a rank's processor has not.
/// multiprocessors: see GemmLibrary and plan::product_multiprocessors.
void open_product_algorithms(const runtime::Session& session, const MeshShape& mesh,
                             const config::Device& options, int multiprocessors, kernels::Exec& exec);

/// How the products of a training in `parameters` are formed on CPUs; of fp64, and on GPUs, nothing is said.
ProductWays ways_of(const kernels::GemmLibrary& library, DType parameters);
ProductWays chosen_products(kernels::Exec& exec, DType parameters);

/// The kind of processor that the last bits of a training in `parameters` come from: the name of GPUs, the
/// instructions of CPUs.
std::string processor_of(const runtime::Device& device, DType parameters);

/// Collective. "" where all ranks have rank 0's kind of processor; else, for its log, a rank that has not.
std::string other_processors(const runtime::Session& session, const std::string& processor);

/// Collective, after ops are bound (nothing on CPUs) and before any runs: what was measured goes to all
/// ranks, and into the file; of a product that several measured, what the lowest of them found. What
/// prevented that is returned, for the log: the job runs as well without it, but the next one measures again
/// and may choose otherwise.
std::string share_product_algorithms(const runtime::Session& session, const config::Device& options,
                                     kernels::Exec& exec);

}  // namespace ztrain::job
