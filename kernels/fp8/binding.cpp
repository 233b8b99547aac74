#include "engine/dispatch.hpp"
#include "kernels/fp8/fp8_quantize.hpp"
#include "kernels/fp8/fp8_weights.hpp"
#include "kernels/fp8/gemm_fp8.hpp"
#include "kernels/fp8/record.hpp"

namespace ztrain::engine {
namespace {

/// What kernels access in packs of 16 bytes begins on one; the memory plan and shards give that.
void require_aligned(const Binding& b) {
  const auto check = [&](program::TensorId id) {
    const auto address = reinterpret_cast<std::uintptr_t>(b.data<std::byte>(id));
    ASSERT(address % 16 == 0, "{} of {}: {} begins at address {:#x}, which is no multiple of 16 bytes",
           b.op.type, b.op.name, b.program.tensor(id).name, address);
  };
  for (const program::TensorId id : b.op.inputs) check(id);
  for (const program::TensorId id : b.op.outputs) check(id);
}

template <class Code>
Bound quantize(const Binding& b) {
  const auto x = in_matrix<bf16>(b, Fp8Quantize::x);
  const auto codes = out_matrix<Code>(b, Fp8Quantize::codes);
  float* const scales = b.output<float>(Fp8Quantize::scales);
  const bool both = b.op.type == Fp8QuantizeBoth::op;
  std::uint8_t* const transposed = both ? b.output<std::uint8_t>(Fp8QuantizeBoth::transposed) : nullptr;
  const auto record = b.record<Quantization>();
  const std::size_t own = b.op.inputs.size() - (record.found > 0 ? 1 : 0);
  const Vector<const float> found = record.found > 0 ? in_vector<float>(b, own) : Vector<const float>{};
  if (record.rowwise) {
    const float* const columns = own > Fp8Quantize::columns ? b.input<float>(Fp8Quantize::columns) : nullptr;
    return launch(b, kernels::fp8_quantize_rows<Code>, x, columns, codes, scales, found);
  }
  if (record.found > 0)
    return launch(b, kernels::fp8_quantize_tensor_by<Code>, x, codes, transposed, scales, found);
  const std::size_t workspace = both ? std::size_t{Fp8QuantizeBoth::workspace} : Fp8Quantize::workspace;
  return launch(b, kernels::fp8_quantize_tensor<Code>, x, codes, transposed, scales,
                b.output<float>(workspace));
}

Bound bind_fp8_magnitudes(const Binding& b) {
  require_aligned(b);
  using Op = program::Fp8Magnitudes;
  const auto x = in_matrix<bf16>(b, Op::x);
  float* const largest = b.output<float>(Op::largest);
  if (!b.record<Op>().rowwise)
    return launch(b, kernels::fp8_largest_of_tensor, x, largest, b.output<float>(Op::workspace));
  const float* const columns = b.op.inputs.size() > Op::columns ? b.input<float>(Op::columns) : nullptr;
  return launch(b, kernels::fp8_largest_of_rows, x, columns, largest);
}

/// y [m, n] of a [m, k] and b [n, k]: the operands of all products of codes, whatever these call them.
struct Product {
  enum In : std::size_t { a, a_scales, b, b_scales };
  enum Out : std::size_t { y, workspace };
};

/// bias: null for none.
Bound fp8_product(const Binding& b, bool rowwise, const std::byte* bias) {
  require_aligned(b);
  kernels::GemmFp8Shape shape;
  shape.m = b.in(Product::a).shape[0];
  shape.n = b.in(Product::b).shape[0];
  shape.k = b.in(Product::a).shape[1];
  shape.scales = rowwise ? kernels::Fp8Scales::rowwise : kernels::Fp8Scales::tensorwise;
  shape.accumulate = accumulates(b);
  shape.bias = bias != nullptr;
  shape.fast_accumulation = b.op.type == LinearFp8::op;
  const std::shared_ptr<kernels::GemmFp8> gemm = kernels::make_gemm_fp8(
      shape, {b.in(Product::a).dtype, b.in(Product::b).dtype, b.out(Product::y).dtype});
  gemm->prepare(b.exec);
  return launch(b, gemm, b.input<std::byte>(Product::a), b.input<float>(Product::a_scales),
                b.input<std::byte>(Product::b), b.input<float>(Product::b_scales), bias,
                b.output<std::byte>(Product::y), b.output<std::byte>(Product::workspace));
}

Bound bind_fp8_quantize(const Binding& b) {
  require_aligned(b);
  if (b.out(Fp8Quantize::codes).dtype == DType::f8e4m3) return quantize<f8e4m3>(b);
  return quantize<f8e5m2>(b);
}

Bound bind_fp8_transpose(const Binding& b) {
  require_aligned(b);
  using Op = program::Fp8Transpose;
  float* const ones = b.op.outputs.size() > Op::ones ? b.output<float>(Op::ones) : nullptr;
  return launch(b, kernels::fp8_transpose, in_matrix<std::uint8_t>(b, Op::codes),
                b.output<std::uint8_t>(Op::transposed), ones);
}

Bound bind_linear_fp8(const Binding& b) {
  const auto record = b.record<LinearFp8>();
  const bool adds = b.op.inputs.size() > LinearFp8::bias && record.adds_bias != 0;
  return fp8_product(b, record.rowwise, adds ? b.input<std::byte>(LinearFp8::bias) : nullptr);
}

Bound bind_linear_fp8_gradient(const Binding& b) {
  return fp8_product(b, b.record<program::LinearFp8GradInput>().rowwise, nullptr);
}

Bound bind_fp8_largest(const Binding& b) {
  using Op = program::Fp8Largest;
  std::vector<kernels::Fp8Search> searches;
  for (const program::CodedPiece& p : b.record<Op>().pieces)
    searches.push_back({{{b.input<bf16>(Op::parameter) + p.begin, p.count}, p.in_weight, p.row},
                        b.output<float>(Op::slots) + p.slot});
  return launch(b, kernels::make_fp8_largest(searches, b.output<float>(Op::workspace)));
}

Bound bind_fp8_scales(const Binding& b) {
  using Op = program::Fp8Scales;
  std::vector<kernels::Fp8Scaling> weights;
  for (const program::ScaledWeight& w : b.record<Op>().weights)
    weights.push_back({{b.input<float>(Op::slots) + w.first_slot, w.slots_per_shard, w.slot, w.begin, w.row,
                        w.shard, w.parts},
                       out_vector<float>(b, weights.size()),
                       w.magnitudes == 1});
  return launch(b, kernels::make_fp8_scales(weights));
}

Bound bind_fp8_encode(const Binding& b) {
  using Op = program::Fp8Encode;
  std::vector<kernels::Fp8Encoding> encodings;
  for (const program::CodedPiece& p : b.record<Op>().pieces)
    encodings.push_back({{{b.input<bf16>(Op::parameter) + p.begin, p.count}, p.in_weight, p.row},
                         b.input<float>(static_cast<std::size_t>(p.slot)),
                         b.output<f8e4m3>(Op::codes) + p.begin});
  return launch(b, kernels::make_fp8_encode(encodings));
}

}  // namespace

std::span<const KernelRow> fp8_kernels() {
  static constexpr KernelRow rows[] = {
      {Fp8Quantize::op, bind_fp8_quantize},
      {Fp8QuantizeBoth::op, bind_fp8_quantize},
      {program::Fp8Magnitudes::op, bind_fp8_magnitudes},
      {program::Fp8Transpose::op, bind_fp8_transpose},
      {LinearFp8::op, bind_linear_fp8, By::library},
      {program::LinearFp8GradInput::op, bind_linear_fp8_gradient, By::library},
      {program::LinearFp8GradWeight::op, bind_linear_fp8_gradient, By::library},
      {program::Fp8Largest::op, bind_fp8_largest},
      {program::Fp8Scales::op, bind_fp8_scales},
      {program::Fp8Encode::op, bind_fp8_encode},
  };
  return rows;
}

}  // namespace ztrain::engine
