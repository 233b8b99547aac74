#pragma once

#include <string>

namespace ztrain::runtime {

/// Returns the PCI address of the GPU that this thread computes on, as /sys/bus/pci/devices names it, or ""
/// if it computes on the CPU, or if the driver does not tell.
std::string gpu_address();

}  // namespace ztrain::runtime
