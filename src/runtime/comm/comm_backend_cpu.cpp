// The backends of builds without GPUs.
#include "runtime/comm/comm_backend.hpp"

namespace ztrain::runtime {

std::unique_ptr<CommunicatorBackend> make_backend(const Session&, Device& device, const config::Device&) {
  return make_host_backend(device);
}

}  // namespace ztrain::runtime
