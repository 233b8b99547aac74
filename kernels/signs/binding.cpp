#include <type_traits>

#include "engine/dispatch.hpp"
#include "kernels/signs/record.hpp"
#include "kernels/signs/signs.hpp"

namespace ztrain::engine {
namespace {

/// f of a float type of optimizer states: double with double gradients, else float or bf16.
template <class G, class F>
Bound with_momentum(DType dtype, const F& f) {
  if constexpr (std::is_same_v<G, double>)
    return f.template operator()<double>();
  else
    return dtype == DType::bf16 ? f.template operator()<bf16>() : f.template operator()<float>();
}

kernels::SignPieces pieces_of(const std::vector<program::Elements>& elements) {
  kernels::SignPieces pieces;
  for (const program::Elements& e : elements) pieces.push_back({e.begin, e.count});
  return pieces;
}

Bound bind_encode_signs(const Binding& b) {
  using Op = program::EncodeSigns;
  const auto record = b.record<Op>();
  const auto of = [&]<class G>() -> Bound {
    return with_momentum<G>(b.in(Op::momentum).dtype, [&]<class M>() -> Bound {
      return launch(b, kernels::encode_signs<G, M>, kernels::MomentumTerm{record.beta1, record.ranks},
                    pieces_of(record.pieces), in_vector<G>(b, Op::gradient), in_vector<M>(b, Op::momentum),
                    b.input<StepScalars>(Op::scalars), out_vector<float>(b, Op::kept),
                    out_vector<std::uint8_t>(b, Op::codes));
    });
  };
  const DType gradient = b.in(Op::gradient).dtype;
  if (gradient == DType::f64) return of.template operator()<double>();
  return gradient == DType::bf16 ? of.template operator()<bf16>() : of.template operator()<float>();
}

Bound bind_sum_signs(const Binding& b) {
  using Op = program::SumSigns;
  const auto record = b.record<Op>();
  return launch(b, kernels::sum_signs, record.begin, pieces_of(record.pieces),
                in_vector<std::uint8_t>(b, Op::terms), b.input<StepScalars>(Op::scalars),
                out_vector<float>(b, Op::kept), out_vector<std::uint8_t>(b, Op::codes));
}

Bound bind_decode_signs(const Binding& b) {
  using Op = program::DecodeSigns;
  const auto record = b.record<Op>();
  const auto of = [&]<class G>() -> Bound {
    return with_momentum<G>(b.in(Op::momentum).dtype, [&]<class M>() -> Bound {
      return launch(b, kernels::decode_signs<G, M>, record.beta1, pieces_of(record.pieces),
                    in_vector<std::uint8_t>(b, Op::codes), in_vector<M>(b, Op::momentum),
                    b.input<StepScalars>(Op::scalars), out_vector<G>(b, Op::gradient));
    });
  };
  return b.out(Op::gradient).dtype == DType::f64 ? of.template operator()<double>()
                                                 : of.template operator()<float>();
}

}  // namespace

std::span<const KernelRow> signs_kernels() {
  static constexpr KernelRow rows[] = {
      {program::EncodeSigns::op, bind_encode_signs},
      {program::SumSigns::op, bind_sum_signs},
      {program::DecodeSigns::op, bind_decode_signs},
  };
  return rows;
}

}  // namespace ztrain::engine
