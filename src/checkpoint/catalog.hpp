#pragma once
// What a checkpoint will hold, as all ranks see it together. Internal to checkpoint.

#include <span>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/rank_group.hpp"

namespace ztrain::checkpoint {

/// Collective. The union of all ranks' catalogs, in rank order: ranks of a pipeline hold parameters that
/// others do not. Only ranks whose catalog differs from rank 0's send theirs. Throws AgreedError naming the
/// parameter or state of which two ranks say different things.
Catalog agree_on_catalog(const Group& world, const Layout& layout, std::span<const StateShard> states);

}  // namespace ztrain::checkpoint
