// rank_sum on a GPU: the same additions in the same order, so the same bits. Each thread sums 16 bytes of
// every source, read as one word; what is not aligned to that is summed element by element.
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/dtype.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "runtime/device/launch_cuda.hpp"

namespace ztrain::runtime {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 4096;  // threads take further packs in turn

/// Number of elements of T that a thread takes at once.
template <class T>
inline constexpr int pack = 16 / static_cast<int>(sizeof(T));

/// n elements, which are read and written in words of up to 16 bytes.
template <class T, int n>
struct Pack {
  static constexpr int bytes = n * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<
      bytes % 16 == 0, uint4,
      std::conditional_t<bytes % 8 == 0, uint2,
                         std::conditional_t<bytes % 4 == 0, std::uint32_t, std::uint16_t>>>;
  struct Words {
    Word at[bytes / sizeof(Word)];
  };
  T at[n];

  __device__ static Pack read(const T* from) {
    Words words;
#pragma unroll
    for (int i = 0; i < bytes / static_cast<int>(sizeof(Word)); ++i)
      words.at[i] = reinterpret_cast<const Word*>(from)[i];
    return std::bit_cast<Pack>(words);
  }
  __device__ void write(T* to) const {
    const auto words = std::bit_cast<Words>(*this);
#pragma unroll
    for (int i = 0; i < bytes / static_cast<int>(sizeof(Word)); ++i)
      reinterpret_cast<Word*>(to)[i] = words.at[i];
  }
};

/// Sums n elements from `begin` on.
template <class In, class Out, bool accumulate, int n>
__device__ void sum_at(const RankSources& sources, Out* out, std::int64_t begin) {
  using Acc = acc_t<In>;
  using Wide = std::common_type_t<Acc, acc_t<Out>>;
  using Source = Pack<In, n>;
  Acc sum[n];
  Source source = Source::read(static_cast<const In*>(sources.at(0)) + begin);
#pragma unroll
  for (int i = 0; i < n; ++i) sum[i] = static_cast<Acc>(source.at[i]);
#pragma unroll 4
  for (int r = 1; r < sources.ranks; ++r) {
    source = Source::read(static_cast<const In*>(sources.at(r)) + begin);
#pragma unroll
    for (int i = 0; i < n; ++i) sum[i] += static_cast<Acc>(source.at[i]);
  }
  Pack<Out, n> result;
  if constexpr (accumulate) result = Pack<Out, n>::read(out + begin);
#pragma unroll
  for (int i = 0; i < n; ++i) {
    Wide value = static_cast<Wide>(sum[i]);
    if constexpr (accumulate) value = static_cast<Wide>(static_cast<acc_t<Out>>(result.at[i])) + value;
    result.at[i] = static_cast<Out>(static_cast<acc_t<Out>>(value));
  }
  result.write(out + begin);
}

/// Each thread sums n elements; those left at the end go to the first threads, one element each.
template <class In, class Out, bool accumulate, int n>
__global__ void __launch_bounds__(threads)
    sum_in_rank_order(const __grid_constant__ RankSources sources, Out* out, std::int64_t count) {
  const std::int64_t packs = count / n, step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t p = first; p < packs; p += step) sum_at<In, Out, accumulate, n>(sources, out, p * n);
  if constexpr (n > 1) {
    if (first < count - packs * n) sum_at<In, Out, accumulate, 1>(sources, out, packs * n + first);
  }
}

bool aligned(const void* address, std::int64_t to) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(to) == 0;
}

template <class In, class Out, bool accumulate>
StreamWork prepare(const RankSources& sources, void* to, std::int64_t count) {
  constexpr int n = pack<In>;
  const bool whole = aligned(sources.own, 16) && aligned(to, sizeof(typename Pack<Out, n>::Word)) &&
                     (sources.ranks == 1 || (aligned(sources.others, 16) && sources.slot_bytes % 16 == 0));
  const std::int64_t packs = whole ? std::max<std::int64_t>(count / n, 1) : count;
  const std::int64_t blocks = std::min((packs + threads - 1) / threads, most_blocks);
  auto* const kernel =
      whole ? sum_in_rank_order<In, Out, accumulate, n> : sum_in_rank_order<In, Out, accumulate, 1>;
  return [=, out = static_cast<Out*>(to)](void* stream) {
    if (count > 0)
      launch("the kernel that sums over ranks", kernel, blocks, threads, stream, sources, out, count);
  };
}

}  // namespace

// Devices of a CUDA build that are not GPUs have null streams, and memory that kernels cannot reach.

StreamWork rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                         std::int64_t count) {
  // The host's version refuses types that are not in the table.
  auto host = host_rank_sum_work(in, out, accumulate, sources, to, count);
  auto gpu = of_sum_types(in, out, [&]<class In, class Out>() {
    return accumulate ? prepare<In, Out, true>(sources, to, count)
                      : prepare<In, Out, false>(sources, to, count);
  });
  return [host = std::move(host), gpu = std::move(gpu)](void* stream) {
    stream == nullptr ? host(stream) : gpu(stream);
  };
}

}  // namespace ztrain::runtime
