#include "runtime/comm/stream_work.hpp"

#include <cstring>

namespace ztrain::runtime {

StreamWork host_copy_work(void* to, const void* from, std::int64_t bytes) {
  return [=](void*) { std::memcpy(to, from, static_cast<std::size_t>(bytes)); };
}

StreamWork host_rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                              std::int64_t count) {
  return [=, sum = rank_sum(in, out, accumulate), in_order = sources.in_order()](void*) {
    sum(in_order.data(), static_cast<int>(in_order.size()), to, count);
  };
}

}  // namespace ztrain::runtime
