#pragma once
// A row multiplied by a factor, and its product with another row. Included by sources named *_reduce.cpp
// alone: the CPU's sums may be reordered.

#include "kernels/launch/pack.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {

/// Computes to = factor x, n elements, and returns the sum of x other.
template <class T>
acc_t<T> scale_and_multiply(const T* __restrict x, const T* __restrict other, acc_t<T> factor,
                            T* __restrict to, std::int64_t n) {
  acc_t<T> total = 0;
  for (std::int64_t begin = 0; begin < n; begin += quantum) {
    const std::int64_t some = n - begin < quantum ? n - begin : quantum;
    acc_t<T> sum = 0;
    if constexpr (widens<T>) {
      float a[quantum], b[quantum];
      widen(x + begin, a, some);
      widen(other + begin, b, some);
      for (std::int64_t i = 0; i < some; ++i) sum += a[i] * b[i];
      for (std::int64_t i = 0; i < some; ++i) a[i] *= factor;
      narrow(a, to + begin, some);
    } else {
      for (std::int64_t i = begin; i < begin + some; ++i) sum += load(x[i]) * load(other[i]);
      for (std::int64_t i = begin; i < begin + some; ++i) to[i] = static_cast<T>(factor * load(x[i]));
    }
    total += sum;
  }
  return total;
}

/// Computes the same by several threads, each of which returns the sum.
template <class T, class Threads>
KOKKOS_INLINE_FUNCTION acc_t<T> scale_and_multiply_by(const Threads& threads, const T* x, const T* other,
                                                      acc_t<T> factor, T* to, std::int64_t n) {
  constexpr std::int64_t size = pack_of<T>;
  acc_t<T> sum = 0;
  for (std::int64_t begin = threads.rank() * size; begin < n; begin += threads.size() * size) {
    const std::int64_t left = n - begin, count = left < size ? left : size;
    Pack<T, size> a, b;
    a.load(x + begin, count);
    b.load(other + begin, count);
#pragma unroll
    for (std::int64_t i = 0; i < size; ++i) {
      sum += load(a.at[i]) * load(b.at[i]);
      a.at[i] = static_cast<T>(factor * load(a.at[i]));
    }
    a.store(to + begin, count);
  }
  return threads.sum(sum);
}

/// Computes the gradients of one choice of a token.
template <class T>
struct CombineGradRow {
  const T *dy, *rows;
  const std::int32_t* slots;
  const acc_t<T>* weights;
  std::int64_t top_k, cols;
  T* drows;
  acc_t<T>* dweights;

  void operator()(std::int64_t choice) const {
    const std::int64_t at = slots[choice] * cols;
    dweights[choice] =
        scale_and_multiply<T>(dy + choice / top_k * cols, rows + at, weights[choice], drows + at, cols);
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t choice) const {
    const std::int64_t at = slots[choice] * cols;
    const acc_t<T> product = scale_and_multiply_by<T>(threads, dy + choice / top_k * cols, rows + at,
                                                      weights[choice], drows + at, cols);
    if (threads.rank() == 0) dweights[choice] = product;
  }
};

template <class T>
struct GateRowsGradRow {
  const T *dy, *x, *gate;
  std::int64_t cols;
  T *dx, *dgate;

  KOKKOS_INLINE_FUNCTION acc_t<T> sigmoid(std::int64_t row) const {
    return 1 / (1 + std::exp(-load(gate[row])));
  }
  KOKKOS_INLINE_FUNCTION void write(std::int64_t row, acc_t<T> s, acc_t<T> product) const {
    dgate[row] = static_cast<T>(product * s * (1 - s));
  }
  void operator()(std::int64_t row) const {
    const std::int64_t at = row * cols;
    const acc_t<T> s = sigmoid(row);
    write(row, s, scale_and_multiply<T>(dy + at, x + at, s, dx + at, cols));
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t row) const {
    const std::int64_t at = row * cols;
    const acc_t<T> s = sigmoid(row),
                   product = scale_and_multiply_by<T>(threads, dy + at, x + at, s, dx + at, cols);
    if (threads.rank() == 0) write(row, s, product);
  }
};

}  // namespace ztrain::kernels
