#pragma once
// Copies and sums that communicators do on a device themselves, prepared once and issued to a queue's stream.

#include <cstdint>
#include <functional>

#include "runtime/comm/rank_sum.hpp"

namespace ztrain::runtime {

/// Work for Device::submit, which gives it the queue's native stream. A null stream is the calling thread.
using StreamWork = std::function<void(void* stream)>;

/// Returns a copy. `to` and `from` do not overlap and are memory of the device.
StreamWork copy_work(void* to, const void* from, std::int64_t bytes);

/// Returns work that adds the sources, count elements each: out (+)= sum, with the contract and the bits of
/// rank_sum, except for which NaN it is. out may be sources.own, but must not overlap the sources otherwise.
/// Throws Error for the same types.
StreamWork rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                         std::int64_t count);

/// Does the same on the calling thread in any build.
StreamWork host_copy_work(void* to, const void* from, std::int64_t bytes);
StreamWork host_rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                              std::int64_t count);

}  // namespace ztrain::runtime
