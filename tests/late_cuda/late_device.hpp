#pragma once
// The product's CUDA device on the late CUDA runtime. Kernels are the host's: a launch gives its stream an
// operation that calls them.

#include <memory>

#include "runtime/device/device.hpp"
#include "tests/late_cuda/late_cuda.hpp"
#include "tests/support/forwarding_device.hpp"

namespace ztrain::test {

class LateDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  /// What is submitted here is kernels, as an Executor does. Communicators, which call CUDA and NCCL in what
  /// they submit, use cuda().
  void submit(runtime::Queue queue, const std::function<void()>& work) override;
  runtime::Device& cuda() const { return inner(); }
};

/// Restarts the runtime with the seed.
std::unique_ptr<LateDevice> make_late_device(const late_cuda::Options& options, int local_rank = 0);

}  // namespace ztrain::test
