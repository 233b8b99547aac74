#include "kernels/init.hpp"

#include <cmath>

#include "base/philox.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

struct NormalPair {
  double even, odd;
};

/// Normal numbers 2 * index and 2 * index + 1: one block of random bits and one radius serve both.
KOKKOS_INLINE_FUNCTION NormalPair normal_pair(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  const PhiloxBlock b = philox(key, stream, index);
  const double radius = std::sqrt(-2.0 * std::log(uniform(b[0])));
  const double angle = 6.283185307179586476925 * uniform(b[1]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

KOKKOS_INLINE_FUNCTION void normal_block(float* __restrict out, std::int64_t n, std::uint64_t key,
                                         std::uint64_t stream, std::uint64_t logical, double std) {
  std::int64_t i = 0;
  if (logical % 2 == 1 && n > 0)
    out[i++] = static_cast<float>(std * normal_pair(key, stream, logical / 2).odd);
  for (; i + 1 < n; i += 2) {
    const NormalPair pair = normal_pair(key, stream, (logical + static_cast<std::uint64_t>(i)) / 2);
    out[i] = static_cast<float>(std * pair.even);
    out[i + 1] = static_cast<float>(std * pair.odd);
  }
  if (i < n) {
    out[i] = static_cast<float>(std *
                                normal_pair(key, stream, (logical + static_cast<std::uint64_t>(i)) / 2).even);
  }
}

}  // namespace

template <class P>
void normal_init(Exec& exec, Vector<P> dst, std::uint64_t key, std::uint64_t stream,
                 std::uint64_t logical_begin, double std) {
  for_blocks(
      exec, dst.count, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        // Through an array of floats: g++ 12 drops the rounding of a double to float and back in a loop that
        // it vectorises.
        float values[quantum];
        normal_block(values, n, key, stream, logical_begin + static_cast<std::uint64_t>(begin), std);
        for (std::int64_t i = 0; i < n; ++i) dst.data[begin + i] = static_cast<P>(values[i]);
      });
}

template <class P>
void uniform_init(Exec& exec, Vector<P> dst, std::uint64_t key, std::uint64_t stream,
                  std::uint64_t logical_begin, double limit) {
  for_blocks(
      exec, dst.count, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        for (std::int64_t i = begin; i < begin + n; ++i) {
          const std::uint64_t index = logical_begin + static_cast<std::uint64_t>(i);
          const std::uint32_t bits = philox(key, stream, index / 4)[index % 4];
          dst.data[i] = static_cast<P>(static_cast<float>(limit * (2 * uniform(bits) - 1)));
        }
      });
}

template <class P>
void constant_init(Exec& exec, Vector<P> dst, double value) {
  const P weight = static_cast<P>(static_cast<float>(value));
  for_blocks(
      exec, dst.count, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        for (std::int64_t i = begin; i < begin + n; ++i) dst.data[i] = weight;
      });
}

#define ZTRAIN_INIT(P)                                                                                  \
  template void normal_init<P>(Exec&, Vector<P>, std::uint64_t, std::uint64_t, std::uint64_t, double);  \
  template void uniform_init<P>(Exec&, Vector<P>, std::uint64_t, std::uint64_t, std::uint64_t, double); \
  template void constant_init<P>(Exec&, Vector<P>, double);
ZTRAIN_INIT(float)
ZTRAIN_INIT(bf16)
ZTRAIN_INIT(f16)
ZTRAIN_INIT(double)
#undef ZTRAIN_INIT

}  // namespace ztrain::kernels
