#include "kernels/signs/signs.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t sign_bytes = code_quantum / 8;
static_assert(sign_quantum_bytes == sign_bytes + 4);

/// The signs of one quantum, and its scale.
template <class Byte>
struct Signs {
  Byte* data;

  KOKKOS_INLINE_FUNCTION auto& scale() const {
    using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
    return *reinterpret_cast<Float*>(data + sign_bytes);
  }
  KOKKOS_INLINE_FUNCTION float value(std::int64_t i) const {
    return (data[i / 8] >> (i % 8) & 1) != 0 ? scale() : -scale();
  }
};

/// Whether the step's sums mean something.
KOKKOS_INLINE_FUNCTION bool counts(const StepScalars& s) {
  return s.found_inf == 0 && s.valid_tokens != 0;
}

/// Codes the n values of a quantum, which value(i) gives, and tells of each what is rounded away.
template <class Value, class Rest>
KOKKOS_INLINE_FUNCTION void code_quantum_of(std::int64_t n, const Value& value, const Rest& rest,
                                            std::uint8_t* codes) {
  const Signs<std::uint8_t> signs{codes};
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::abs(value(i));
  const float scale = sum / static_cast<float>(n);
  signs.scale() = scale;
  for (std::int64_t byte = 0; byte < sign_bytes; ++byte) {
    unsigned bits = 0;
    for (std::int64_t i = byte * 8; i < byte * 8 + 8 && i < n; ++i) {
      const float v = value(i);
      const bool plus = v >= 0;
      bits |= (plus ? 1U : 0U) << (i % 8);
      rest(i, v - (plus ? scale : -scale));
    }
    codes[byte] = static_cast<std::uint8_t>(bits);
  }
}

template <class G, class M>
struct EncodeQuantum {
  const G* gradient;
  const M* momentum;
  const StepScalars* scalars;
  float* error;
  std::uint8_t* codes;  ///< of the piece, as the pointers before
  std::int64_t count;
  double beta1;
  float keep;  ///< of the momentum

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t q) const {
    if (!counts(*scalars)) return;
    const auto take = static_cast<float>((1 - beta1) * scalars->unclipped_multiplier());
    const std::int64_t first = q * code_quantum, left = count - first;
    const std::int64_t n = left < code_quantum ? left : code_quantum;
    const G* g = gradient + first;
    const M* m = momentum + first;
    float* e = error + first;
    for (std::int64_t i = 0; i < n; ++i)
      e[i] += std::fma(take, static_cast<float>(g[i]), keep * static_cast<float>(m[i]));
    code_quantum_of(
        n, [&](std::int64_t i) { return e[i]; }, [&](std::int64_t i, float rest) { e[i] = rest; },
        codes + q * sign_quantum_bytes);
  }
};

struct SumQuantum {
  const std::uint8_t* terms;
  const StepScalars* scalars;
  float* error;
  std::uint8_t* codes;
  std::int64_t count, ranks, each;  ///< each: bytes of a rank's codes

  KOKKOS_INLINE_FUNCTION float sum(std::int64_t q, std::int64_t i) const {
    float sum = 0;
    for (std::int64_t r = 0; r < ranks; ++r)
      sum += Signs<const std::uint8_t>{terms + r * each + q * sign_quantum_bytes}.value(i);
    return sum;
  }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t q) const {
    if (!counts(*scalars)) return;
    const std::int64_t first = q * code_quantum, left = count - first;
    code_quantum_of(
        left < code_quantum ? left : code_quantum, [&](std::int64_t i) { return sum(q, i); },
        [&](std::int64_t i, float rest) { error[first + i] += rest; }, codes + q * sign_quantum_bytes);
  }
};

template <class G, class M>
struct DecodeQuantum {
  const std::uint8_t* codes;
  const M* momentum;
  const StepScalars* scalars;
  G* gradient;
  std::int64_t count;
  double beta1;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t q) const {
    if (!counts(*scalars)) return;
    const double inverse = 1 / ((1 - beta1) * scalars->unclipped_multiplier());
    const std::int64_t first = q * code_quantum, left = count - first;
    const Signs<const std::uint8_t> signs{codes + q * sign_quantum_bytes};
    for (std::int64_t i = 0; i < code_quantum && i < left; ++i) {
      const double value = signs.value(i) - beta1 * static_cast<double>(momentum[first + i]);
      gradient[first + i] = static_cast<G>(value * inverse);
    }
  }
};

/// What a gradient is where no piece writes it.
template <class G>
struct Blank {
  const StepScalars* scalars;
  G* gradient;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    gradient[i] = scalars->found_inf != 0 ? std::numeric_limits<G>::quiet_NaN() : static_cast<G>(0);
  }
};

void check(const SignPieces& pieces, std::int64_t elements, std::int64_t code_bytes) {
  const std::int64_t coded = code_bytes / sign_quantum_bytes * code_quantum;
  REQUIRE(code_bytes % sign_quantum_bytes == 0, "{} bytes are no whole quanta of signs", code_bytes);
  for (const SignPiece& p : pieces)
    REQUIRE(p.begin % code_quantum == 0 && p.begin + p.count <= elements && p.begin + p.count <= coded,
            "signs of elements {} to {}, of {} elements and codes for {}", p.begin, p.begin + p.count,
            elements, coded);
}

std::int64_t codes_at(std::int64_t element) {
  return element / code_quantum * sign_quantum_bytes;
}

}  // namespace

template <class G, class M>
void encode_signs(Exec& exec, const MomentumTerm& term, const SignPieces& pieces, Vector<const G> gradient,
                  Vector<const M> momentum, const StepScalars* scalars, Vector<float> error,
                  Vector<std::uint8_t> codes) {
  check(pieces, std::min({gradient.count, momentum.count, error.count}), codes.count);
  zero(exec, codes.data, codes.count);
  for (const SignPiece& p : pieces)
    for_rows(exec, ceil_div(p.count, code_quantum),
             EncodeQuantum<G, M>{gradient.data + p.begin, momentum.data + p.begin, scalars,
                                 error.data + p.begin, codes.data + codes_at(p.begin), p.count, term.beta1,
                                 static_cast<float>(term.beta1 / static_cast<double>(term.ranks))});
}

void sum_signs(Exec& exec, std::int64_t begin, const SignPieces& pieces, Vector<const std::uint8_t> terms,
               const StepScalars* scalars, Vector<float> error, Vector<std::uint8_t> codes) {
  check(pieces, error.count - begin, codes.count);
  REQUIRE(codes.count > 0 && terms.count % codes.count == 0, "{} bytes of signs are no terms of {}",
          terms.count, codes.count);
  zero(exec, codes.data, codes.count);
  for (const SignPiece& p : pieces)
    for_rows(exec, ceil_div(p.count, code_quantum),
             SumQuantum{terms.data + codes_at(p.begin), scalars, error.data + begin + p.begin,
                        codes.data + codes_at(p.begin), p.count, terms.count / codes.count, codes.count});
}

template <class G, class M>
void decode_signs(Exec& exec, double beta1, const SignPieces& pieces, Vector<const std::uint8_t> codes,
                  Vector<const M> momentum, const StepScalars* scalars, Vector<G> gradient) {
  check(pieces, std::min(momentum.count, gradient.count), codes.count);
  for_rows(exec, gradient.count, Blank<G>{scalars, gradient.data});
  for (const SignPiece& p : pieces)
    for_rows(exec, ceil_div(p.count, code_quantum),
             DecodeQuantum<G, M>{codes.data + codes_at(p.begin), momentum.data + p.begin, scalars,
                                 gradient.data + p.begin, p.count, beta1});
}

#define ZTRAIN_SIGNS_OF(G, M)                                                                      \
  template void encode_signs<G, M>(Exec&, const MomentumTerm&, const SignPieces&, Vector<const G>, \
                                   Vector<const M>, const StepScalars*, Vector<float>,             \
                                   Vector<std::uint8_t>);
ZTRAIN_SIGNS_OF(float, float)
ZTRAIN_SIGNS_OF(float, bf16)
ZTRAIN_SIGNS_OF(bf16, float)
ZTRAIN_SIGNS_OF(bf16, bf16)
ZTRAIN_SIGNS_OF(double, double)
#undef ZTRAIN_SIGNS_OF
#define ZTRAIN_SIGNS_TO(G, M)                                                                    \
  template void decode_signs<G, M>(Exec&, double, const SignPieces&, Vector<const std::uint8_t>, \
                                   Vector<const M>, const StepScalars*, Vector<G>);
ZTRAIN_SIGNS_TO(float, float)
ZTRAIN_SIGNS_TO(float, bf16)
ZTRAIN_SIGNS_TO(double, double)
#undef ZTRAIN_SIGNS_TO

}  // namespace ztrain::kernels
