#pragma once
// The device of tests that a device must pass which runs work later than it is submitted.

#include <cstdint>
#include <memory>

#include "runtime/device/device.hpp"

namespace ztrain::test {

/// That runs work as late as it may, in an order drawn from the seed. The deferred device; of
/// tests/late_cuda, CUDA's. No two at once.
std::unique_ptr<runtime::Device> asynchronous_device(std::uint64_t seed);

}  // namespace ztrain::test
