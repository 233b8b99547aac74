#pragma once
// Copies between tiers: of the device, by its queue without the host's help; of NVMe, by requests that the
// host starts and waits for, as it does with messages.

#include <memory>

#include "engine/kernel_table.hpp"
#include "runtime/comm/comm.hpp"

namespace ztrain::engine {

/// Of a copy whose operands are in different tiers. Null: a kernel does it, since the host reaches both.
std::unique_ptr<runtime::Collective> make_tier_copy(const Binding& b);

}  // namespace ztrain::engine
