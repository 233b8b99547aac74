#pragma once
// Chooses which of the visible GPUs a rank takes, and what to say if there is none. Pure, so it is tested
// without a GPU.

#include <optional>
#include <string>

namespace ztrain::runtime {

/// Returns the GPU of a rank: its only one if a batch system shows each rank its own GPU, else by turns.
/// local_rank is the rank's index on its node; visible >= 1.
int choose_gpu(int local_rank, int visible);

enum class NoGpu { driver, device, other };

/// Returns the message. said is CUDA's own text; visible_devices is the environment's CUDA_VISIBLE_DEVICES,
/// if it is set.
std::string no_gpu_message(NoGpu why, const std::string& said,
                           const std::optional<std::string>& visible_devices);

}  // namespace ztrain::runtime
