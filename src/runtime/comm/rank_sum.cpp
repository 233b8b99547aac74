#include "runtime/comm/rank_sum.hpp"

#include <algorithm>
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

template <class In, class Out>
RankSum choose(bool accumulate) {
  return accumulate ? sum_in_rank_order<In, Out, true> : sum_in_rank_order<In, Out, false>;
}

[[noreturn]] void refuse(DType in, DType out) {
  fail("a reduction cannot sum {} into {}: use fp32, bf16, fp64, or fp16 with fp16 or fp32", name_of(in),
       name_of(out));
}

template <class In>
RankSum choose(DType out, bool accumulate) {
  switch (out) {
    case DType::f32:
      return choose<In, float>(accumulate);
    case DType::bf16:
      return choose<In, bf16>(accumulate);
    case DType::f64:
      return choose<In, double>(accumulate);
    default:
      refuse(dtype_of<In>(), out);
  }
}

}  // namespace

RankSum rank_sum(DType in, DType out, bool accumulate) {
  if (in == DType::f16 && out == DType::f16) return choose<f16, f16>(accumulate);
  if (in == DType::f16 && out == DType::f32) return choose<f16, float>(accumulate);
  if (in == DType::f32 && out == DType::f16) return choose<float, f16>(accumulate);
  switch (in) {
    case DType::f32:
      return choose<float>(out, accumulate);
    case DType::bf16:
      return choose<bf16>(out, accumulate);
    case DType::f64:
      return choose<double>(out, accumulate);
    default:
      refuse(in, out);
  }
}

}  // namespace ztrain::runtime
