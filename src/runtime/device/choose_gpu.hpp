#pragma once
// Which of the visible GPUs a rank takes, and what to say when there is none. Pure, so that it is tested
// without one.

#include <optional>
#include <string>

namespace ztrain::runtime {

/// local_rank: of the rank on its node; visible >= 1. Where a batch system shows each rank its own GPU alone,
/// that one; else by turns.
int choose_gpu(int local_rank, int visible);

enum class NoGpu { driver, device, other };

/// said: CUDA's own text. visible_devices: the environment's CUDA_VISIBLE_DEVICES, if it is set.
std::string no_gpu_message(NoGpu why, const std::string& said,
                           const std::optional<std::string>& visible_devices);

}  // namespace ztrain::runtime
