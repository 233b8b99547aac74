#include "engine/dispatch.hpp"
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

}  // namespace

std::span<const KernelRow> dequantize_kernels() {
  static constexpr KernelRow rows[] = {
      {program::Dequantize::op, bind_dequantize},
  };
  return rows;
}

}  // namespace ztrain::engine
