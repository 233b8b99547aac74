#pragma once
// What the tests of this folder have in common.

#include <cuda_runtime_api.h>

namespace ztrain::test {

/// No result may depend on it.
inline constexpr ThreadOrder orders[] = {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled};

/// ThreadSanitizer takes some ms for a block: its tests take fewer and smaller cases of each kind.
#ifdef __SANITIZE_THREAD__
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif

}  // namespace ztrain::test
