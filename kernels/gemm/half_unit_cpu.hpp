#pragma once
// What multiplies tiles of bf16 on this processor. Included by kernel sources only.

#include <optional>

#include "kernels/launch/exec.hpp"
#include "kernels/launch/half_tile.hpp"

#ifdef ZTRAIN_HALF_TILES

namespace ztrain::kernels {

/// Nothing where products of bf16 are formed in fp32 (GemmLibrary::bf16), or where the processor's are by AMX
/// and this build or the operating system has none: without it such processors are faster in fp32.
std::optional<half::Unit> half_unit(Exec& exec);

/// Whether the processor has AMX for bf16 (multiplies_tiles()), and this build and the operating system too.
bool may_use_tiles();

}  // namespace ztrain::kernels

#endif
