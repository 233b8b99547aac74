#pragma once
// Chooses which of the visible GPUs a rank takes, and what to say if there is none. Pure, so it is tested
// without a GPU.

#include <fmt/format.h>

#include <optional>
#include <string>

namespace ztrain::runtime {

/// Returns the GPU of a rank: its only one if a batch system shows each rank its own GPU, else by turns.
/// local_rank is the rank's index on its node; visible >= 1.
inline int choose_gpu(int local_rank, int visible) {
  return local_rank % visible;
}

enum class NoGpu { driver, device, other };

/// Returns the message. said is CUDA's own text; visible_devices is the environment's CUDA_VISIBLE_DEVICES,
/// if it is set.
inline std::string no_gpu_message(NoGpu why, const std::string& said,
                                  const std::optional<std::string>& visible_devices) {
  std::string reason;
  if (why == NoGpu::driver)
    reason = "the NVIDIA driver is missing, or older than the CUDA of this build (nvidia-smi shows both)";
  else if (visible_devices)
    reason = fmt::format("CUDA_VISIBLE_DEVICES is \"{}\", which leaves none", *visible_devices);
  else if (why == NoGpu::device)
    reason = "this node has none, or the batch system gave the job none (srun --gpus-per-node)";
  else
    reason = "the driver does not start";
  return fmt::format(
      "no CUDA device is visible: {}; cudaGetDeviceCount says: {}. This ztrain was built for GPUs: plan, "
      "check, deck and export work without one, and a build for CPUs (cmake --preset cpu) trains on CPUs",
      reason, said);
}

}  // namespace ztrain::runtime
