#pragma once
// The sums of the gradient of sinks (sinks.hpp). Included by kernel sources named *_reduce.cpp alone.

#include <cmath>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/launch/pack.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {

/// Returns the inner product of n elements, by one thread of a CPU.
template <class T>
[[gnu::noinline]] acc_t<T> inner_product(const T* __restrict x, const T* __restrict y, std::int64_t n) {
  acc_t<T> sum = 0;
  if constexpr (widens<T>)
    for_groups(n, [&](std::int64_t begin, auto count) {
      float a[wide_group], b[wide_group];
      widen(x + begin, a, count);
      widen(y + begin, b, count);
      for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    });
  else
    for (std::int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

/// Sums dsink over a block of sink_tokens tokens, for one head: row [block, head].
template <class T>
struct SinkTerms {
  const T* sinks;  ///< of the heads at hand
  const T *o, *dout;
  const acc_t<T>* lse;
  std::int64_t tokens, heads, head_dim;
  double* sums;  ///< [blocks, heads]

  KOKKOS_INLINE_FUNCTION std::int64_t end(std::int64_t begin) const {
    return begin + sink_tokens < tokens ? begin + sink_tokens : tokens;
  }
  /// Returns the part of the softmax that the sink has.
  KOKKOS_INLINE_FUNCTION acc_t<T> share(std::int64_t token, std::int64_t head) const {
    return std::exp(load(sinks[head]) - lse[token * heads + head]);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t place(std::int64_t token, std::int64_t head) const {
    return (token * heads + head) * head_dim;
  }

  void operator()(std::int64_t row) const {
    const std::int64_t head = row % heads, begin = row / heads * sink_tokens;
    double sum = 0;
    for (std::int64_t t = begin; t < end(begin); ++t) {
      const std::int64_t at = place(t, head);
      sum -= share(t, head) * inner_product<T>(o + at, dout + at, head_dim);
    }
    sums[row] = sum;
  }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t row) const {
    constexpr std::int64_t size = pack_of<T>;
    const std::int64_t head = row % heads, begin = row / heads * sink_tokens;
    const std::int64_t packs = (head_dim + size - 1) / size, all = (end(begin) - begin) * packs;
    double sum = 0;
    for (std::int64_t i = threads.rank(); i < all; i += threads.size()) {
      const std::int64_t t = begin + i / packs, d = i % packs * size, left = head_dim - d;
      Pack<T, size> x, y;
      x.load(o + place(t, head) + d, left < size ? left : size);
      y.load(dout + place(t, head) + d, left < size ? left : size);
      acc_t<T> product = 0;
#pragma unroll
      for (std::int64_t j = 0; j < size; ++j) product += load(x.at[j]) * load(y.at[j]);
      sum -= share(t, head) * product;
    }
    sum = threads.sum(sum);
    if (threads.rank() == 0) sums[row] = sum;
  }
};

/// Adds the sums of the blocks. A row is a sink.
template <class T, class G>
struct SinkSums {
  const double* sums;
  std::int64_t blocks, heads, first;
  bool accumulate;
  G* dsinks;

  KOKKOS_INLINE_FUNCTION double sum(std::int64_t sink, std::int64_t begin, std::int64_t step) const {
    const std::int64_t head = sink - first;
    double sum = 0;
    if (head >= 0 && head < heads)
      for (std::int64_t b = begin; b < blocks; b += step) sum += sums[b * heads + head];
    return sum;
  }
  KOKKOS_INLINE_FUNCTION void write(std::int64_t sink, double sum) const {
    const double before = accumulate ? static_cast<double>(load(dsinks[sink])) : 0;
    dsinks[sink] = static_cast<G>(static_cast<acc_t<G>>(before + sum));
  }
  void operator()(std::int64_t sink) const { write(sink, sum(sink, 0, 1)); }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t sink) const {
    const double all = threads.sum(sum(sink, threads.rank(), threads.size()));
    if (threads.rank() == 0) write(sink, all);
  }
};

}  // namespace ztrain::kernels
