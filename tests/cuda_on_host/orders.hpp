#pragma once
// What the tests of this folder have in common.

#include <cuda_runtime_api.h>

namespace ztrain::test {

/// No result may depend on it. First that which differs most from the order of numbers: what it leaves in
/// shared memory may be what a later launch lacks.
inline constexpr ThreadOrder orders[] = {ThreadOrder::backward, ThreadOrder::shuffled, ThreadOrder::forward};

/// ThreadSanitizer takes some ms for a block: its tests take fewer and smaller cases of each kind.
#ifdef __SANITIZE_THREAD__
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif

}  // namespace ztrain::test
