#include <algorithm>

#include "engine/dispatch.hpp"
#include "kernels/dequantize/block_codes.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/dequantize/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_dequantize(const Binding& b) {
  using Op = program::Dequantize;
  const auto record = b.record<Op>();
  const auto statistics = in_vector<float>(b, Op::statistics);
  const kernels::CodedWeight weight{record.form(),   b.input<std::uint8_t>(Op::codes),
                                    statistics.data, statistics.count,
                                    record.begin,    record.part()};
  return with_type(b.out(Op::weight).dtype, [&]<class T>() -> Bound {
    return {[&exec = b.exec, decode = kernels::make_dequantize<T>(weight, out_vector<T>(b, Op::weight))] {
      decode(exec);
    }};
  });
}

Bound bind_encode_blocks(const Binding& b) {
  using Op = program::EncodeBlocks;
  const auto record = b.record<Op>();
  const std::int64_t coded = b.out(Op::codes).shape[0] * code_quantum;
  return with_type(b.in(Op::values).dtype, [&]<class T>() -> Bound {
    return launch(b, kernels::encode_blocks<T>, record.bits, in_vector<T>(b, Op::values),
                  kernels::PartOfSlots{record.slots, record.begin, coded / record.slots, record.nodes},
                  b.output<std::uint8_t>(Op::codes));
  });
}

/// The number of ranks is that of the codes' elements divided by that of the values.
template <class Op>
Bound bind_codes(const Binding& b) {
  const std::int64_t coded = b.in(Op::codes).shape[0] * code_quantum;
  const kernels::CodesOfRanks codes{b.input<std::uint8_t>(Op::codes),
                                    coded / std::max<std::int64_t>(1, elements(b.out(Op::values).shape))};
  return with_type(b.out(Op::values).dtype, [&]<class T>() -> Bound {
    return launch(b, kernels::decode_blocks<T>, b.record<Op>().bits, codes, accumulates(b),
                  out_vector<T>(b, Op::values));
  });
}

}  // namespace

std::span<const KernelRow> dequantize_kernels() {
  static constexpr KernelRow rows[] = {
      {program::Dequantize::op, bind_dequantize},
      {program::EncodeBlocks::op, bind_encode_blocks},
      {program::DecodeBlocks::op, bind_codes<program::DecodeBlocks>},
      {program::SumCodes::op, bind_codes<program::SumCodes>},
  };
  return rows;
}

}  // namespace ztrain::engine
