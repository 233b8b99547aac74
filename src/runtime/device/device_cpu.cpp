#include "runtime/device/device.hpp"

namespace ztrain::runtime {

std::unique_ptr<Device> make_device(int) {
  return make_host_device();
}

bool built_for_gpus() {
  return false;
}

}  // namespace ztrain::runtime
