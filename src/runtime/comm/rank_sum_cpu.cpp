// The work of builds without GPUs: all streams are the calling thread.
#include "runtime/comm/rank_sum.hpp"

namespace ztrain::runtime {

StreamWork copy_work(void* to, const void* from, std::int64_t bytes) {
  return host_copy_work(to, from, bytes);
}

StreamWork rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                         std::int64_t count) {
  return host_rank_sum_work(in, out, accumulate, sources, to, count);
}

}  // namespace ztrain::runtime
