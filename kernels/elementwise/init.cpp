#include "kernels/elementwise/init.hpp"

#include <cmath>

#include "kernels/elementwise/random_words.hpp"
#include "kernels/launch/pieces.hpp"

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

/// out[j] = std times normal number first + j, for j < n; room for n rounded up to a multiple of 2.
KOKKOS_INLINE_FUNCTION void draw_normals(std::uint64_t key, std::uint64_t stream, std::uint64_t first,
                                         double std, std::int64_t n, float* __restrict out) {
  const bool odd = first % 2 == 1;
  std::uint64_t index = first / 2;
  NormalPair pair = normal_pair(key, stream, index);
  for (std::int64_t j = 0; j < n; j += 2) {
    // Whole pairs need none beyond the last.
    const NormalPair next = odd || j + 2 < n ? normal_pair(key, stream, ++index) : pair;
    out[j] = static_cast<float>(std * (odd ? pair.odd : pair.even));
    out[j + 1] = static_cast<float>(std * (odd ? next.even : pair.odd));
    pair = next;
  }
}

/// The last rounding, to P.
template <class P>
KOKKOS_INLINE_FUNCTION void round_values(const float* __restrict values, P* __restrict out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<P>(values[i]);
}

template <class P>
KOKKOS_INLINE_FUNCTION void fill_values(P value, P* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = value;
}

/// A thread of a GPU makes one pair or one block of the generator: the arithmetic takes longer than the
/// memory.
constexpr std::int64_t normals = 2, uniforms = 4;

}  // namespace

template <class P>
void normal_init(Exec& exec, Vector<P> dst, std::uint64_t key, std::uint64_t stream,
                 std::uint64_t logical_begin, double std) {
  constexpr std::int64_t room = on_gpu ? normals : quantum;
  for_pieces<normals>(
      exec, dst.count, KOKKOS_LAMBDA(const Piece<normals> p) {
        // Through an array of floats: g++ 12 drops the rounding of a double to float and back in a loop that
        // it vectorises.
        float values[room];
        draw_normals(key, stream, logical_begin + static_cast<std::uint64_t>(p.begin), std, p.n(), values);
        round_values<P>(values, p.out(dst.data), p.n());
      });
}

template <class P>
void uniform_init(Exec& exec, Vector<P> dst, std::uint64_t key, std::uint64_t stream,
                  std::uint64_t logical_begin, double limit) {
  constexpr std::int64_t room = on_gpu ? uniforms : quantum;
  for_pieces<uniforms>(
      exec, dst.count, KOKKOS_LAMBDA(const Piece<uniforms> p) {
        std::uint32_t words[room];
        float values[room];
        draw_words(key, stream, logical_begin + static_cast<std::uint64_t>(p.begin), p.n(), words);
        for (std::int64_t i = 0; i < p.n(); ++i)
          values[i] = static_cast<float>(limit * (2 * uniform(words[i]) - 1));
        round_values<P>(values, p.out(dst.data), p.n());
      });
}

template <class P>
void constant_init(Exec& exec, Vector<P> dst, double value) {
  const P weight = static_cast<P>(static_cast<float>(value));
  for_pieces<pack_of<P>>(
      exec, dst.count, KOKKOS_LAMBDA(const PieceOf<P> p) { fill_values<P>(weight, p.out(dst.data), p.n()); });
}

ZTRAIN_INSTANCES(normal_init)
ZTRAIN_INSTANCES(uniform_init)
ZTRAIN_INSTANCES(constant_init)

}  // namespace ztrain::kernels
