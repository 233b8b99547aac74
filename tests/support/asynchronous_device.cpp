#include "tests/support/asynchronous_device.hpp"

namespace ztrain::test {

std::unique_ptr<runtime::Device> asynchronous_device(std::uint64_t seed) {
  return runtime::make_deferred_device(seed);
}

}  // namespace ztrain::test
