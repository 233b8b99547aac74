#pragma once
// The copies and sums that communicators do on a device themselves: prepared once, issued to a queue's
// stream.

#include <cstdint>
#include <functional>

#include "runtime/comm/rank_sum.hpp"

namespace ztrain::runtime {

/// Work for Device::submit, which gives it the queue's native stream. A null stream is the calling thread.
using StreamWork = std::function<void(void* stream)>;

/// to and from do not overlap. Memory of the device, as below.
StreamWork copy_work(void* to, const void* from, std::int64_t bytes);

/// out (+)= the sum of the sources, count elements each: rank_sum's contract, and its bits but for which NaN
/// it is. out may be sources.own, but not overlap the sources otherwise. Throws Error for the same types.
StreamWork rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                         std::int64_t count);

/// The same on the calling thread, whatever the build.
StreamWork host_copy_work(void* to, const void* from, std::int64_t bytes);
StreamWork host_rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                              std::int64_t count);

}  // namespace ztrain::runtime
