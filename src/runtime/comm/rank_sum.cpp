#include "runtime/comm/rank_sum.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"

namespace ztrain::runtime {

namespace {

// Elements summed at a time: the accumulator and the blocks read against it stay in the first-level cache.
constexpr std::int64_t block = 2048;

template <class In, class Acc>
void load(const In* __restrict source, Acc* __restrict sum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<Acc>(source[i]);
}

template <class In, class Acc>
void add(const In* __restrict source, Acc* __restrict sum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<Acc>(source[i]);
}

template <bool accumulate, class Acc, class Out>
void store(const Acc* __restrict sum, Out* __restrict out, std::int64_t n) {
  using Wide = std::common_type_t<Acc, acc_t<Out>>;
  for (std::int64_t i = 0; i < n; ++i) {
    Wide value = static_cast<Wide>(sum[i]);
    if constexpr (accumulate) value = static_cast<Wide>(static_cast<acc_t<Out>>(out[i])) + value;
    out[i] = static_cast<Out>(static_cast<acc_t<Out>>(value));
  }
}

template <class In, class Out, bool accumulate>
void sum_in_rank_order(const void* const* sources, int ranks, void* out, std::int64_t count) {
  using Acc = acc_t<In>;
  alignas(64) Acc sum[block];
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t n = std::min(block, count - begin);
    load(static_cast<const In*>(sources[0]) + begin, sum, n);
    for (int r = 1; r < ranks; ++r) add(static_cast<const In*>(sources[r]) + begin, sum, n);
    store<accumulate>(sum, static_cast<Out*>(out) + begin, n);
  }
}

}  // namespace

void refuse_sum(DType in, DType out) {
  fail("a reduction cannot sum {} into {}: use fp32, bf16, fp64, or fp16 with fp16 or fp32", name_of(in),
       name_of(out));
}

RankSum rank_sum(DType in, DType out, bool accumulate) {
  return of_sum_types(in, out, [&]<class In, class Out>() -> RankSum {
    return accumulate ? sum_in_rank_order<In, Out, true> : sum_in_rank_order<In, Out, false>;
  });
}

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
