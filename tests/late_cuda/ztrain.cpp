// The product's executable on a CUDA that runs everything as late as it may, for tools/gpu_acceptance.sh:
// main() is the product's, and what it calls to get a device and its communicators is called through here.
#include <mpi.h>

#include "runtime/comm/comm_backend.hpp"
#include "runtime/session/session.hpp"
#include "tests/late_cuda/late_device.hpp"

// What --wrap makes of the product's functions, by their names as the linker knows them.
#define ZTRAIN_MAKE_DEVICE "_ZN6ztrain7runtime11make_deviceEi"
#define ZTRAIN_MAKE_BACKEND \
  "_ZN6ztrain7runtime12make_backendERKNS0_7SessionERNS0_6DeviceERKNS_6config6DeviceE"

namespace ztrain::runtime {

std::unique_ptr<Device> real_device(int local_rank) asm("__real_" ZTRAIN_MAKE_DEVICE);
std::unique_ptr<CommunicatorBackend> real_backend(
    const Session& session, Device& device, const config::Device& options) asm("__real_" ZTRAIN_MAKE_BACKEND);

std::unique_ptr<Device> late_device(int local_rank) asm("__wrap_" ZTRAIN_MAKE_DEVICE);
std::unique_ptr<Device> late_device(int local_rank) {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  late_cuda::restart({.seed = static_cast<std::uint64_t>(local_rank), .runs_when_idle = ranks > 1});
  return std::make_unique<test::LateDevice>(real_device(local_rank));
}

/// Communicators call CUDA in what they submit; kernels are the host's.
std::unique_ptr<CommunicatorBackend> late_backend(
    const Session& session, Device& device, const config::Device& options) asm("__wrap_" ZTRAIN_MAKE_BACKEND);
std::unique_ptr<CommunicatorBackend> late_backend(const Session& session, Device& device,
                                                  const config::Device& options) {
  auto* const late = dynamic_cast<test::LateDevice*>(&device);
  return real_backend(session, late ? late->cuda() : device, options);
}

}  // namespace ztrain::runtime
