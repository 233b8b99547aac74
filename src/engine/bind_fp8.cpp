#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernels/fp8/fp8_quantize.hpp"
#include "kernels/fp8/fp8_weights.hpp"
#include "kernels/fp8/gemm_fp8.hpp"

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

bool rowwise(const Binding& b) {
  return b.op.attributes.integer("rowwise") != 0;
}

template <class Code>
Bound quantize(const Binding& b) {
  const auto x = in_matrix<bf16>(b, 0);
  const auto codes = out_matrix<Code>(b, 0);
  float* const scales = b.output<float>(1);
  const bool both = b.op.type == "fp8_quantize_both";
  if (!rowwise(b))
    return {[&exec = b.exec, x, codes, transposed = both ? b.output<std::uint8_t>(2) : nullptr, scales,
             partials = b.output<float>(both ? 3 : 2)] {
              kernels::fp8_quantize_tensor<Code>(exec, x, codes, transposed, scales, partials);
            },
            nullptr};
  const float* const columns = b.op.inputs.size() > 1 ? b.input<float>(1) : nullptr;
  return {[&exec = b.exec, x, columns, codes, scales] {
            kernels::fp8_quantize_rows<Code>(exec, x, columns, codes, scales);
          },
          nullptr};
}

/// C[m, n] of A[m, k] and B[n, k]: operands A, its scales, B, its scales. bias: null for none.
Bound fp8_product(const Binding& b, const std::byte* bias) {
  require_aligned(b);
  kernels::GemmFp8Shape shape;
  shape.m = b.in(0).shape[0];
  shape.n = b.in(2).shape[0];
  shape.k = b.in(0).shape[1];
  shape.scales = rowwise(b) ? kernels::Fp8Scales::rowwise : kernels::Fp8Scales::tensorwise;
  shape.accumulate = accumulates(b);
  shape.bias = bias != nullptr;
  shape.fast_accumulation = b.op.type == "linear_fp8";
  auto gemm = kernels::make_gemm_fp8(shape, {b.in(0).dtype, b.in(2).dtype, b.out(0).dtype});
  gemm->prepare(b.exec);
  // std::function wants copyable captures.
  return {[&exec = b.exec, g = std::shared_ptr<kernels::GemmFp8>(std::move(gemm)), x = b.input<std::byte>(0),
           x_scale = b.input<float>(1), y = b.input<std::byte>(2), y_scale = b.input<float>(3), bias,
           out = b.output<std::byte>(0), workspace = b.output<std::byte>(1)] {
            g->run(exec, x, x_scale, y, y_scale, bias, out, workspace);
          },
          nullptr};
}

Bound prepared(const Binding& b, std::shared_ptr<kernels::Fp8Launch> launch) {
  return {[&exec = b.exec, launch] { launch->run(exec); }, nullptr};
}

}  // namespace

Bound bind_fp8_quantize(const Binding& b) {
  require_aligned(b);
  if (b.out(0).dtype == DType::f8e4m3) return quantize<f8e4m3>(b);
  return quantize<f8e5m2>(b);
}

Bound bind_fp8_transpose(const Binding& b) {
  require_aligned(b);
  const Matrix<const std::uint8_t> from = in_matrix<std::uint8_t>(b, 0);
  auto* const to = b.output<std::uint8_t>(0);
  float* const ones = b.op.outputs.size() > 1 ? b.output<float>(1) : nullptr;
  return {[&exec = b.exec, from, to, ones] { kernels::fp8_transpose(exec, from, to, ones); }, nullptr};
}

Bound bind_linear_fp8(const Binding& b) {
  return fp8_product(b, b.op.inputs.size() > 4 ? b.input<std::byte>(4) : nullptr);
}

Bound bind_linear_fp8_gradient(const Binding& b) {
  return fp8_product(b, nullptr);
}

Bound bind_fp8_largest(const Binding& b) {
  std::vector<kernels::Fp8Search> searches;
  const auto& p = b.op.attributes.integers("pieces");
  for (std::size_t i = 0; i < p.size(); i += 5)
    searches.push_back(
        {{{b.input<bf16>(0) + p[i], p[i + 1]}, p[i + 2], p[i + 3]}, b.output<float>(0) + p[i + 4]});
  return prepared(b, kernels::make_fp8_largest(searches, b.output<float>(1)));
}

Bound bind_fp8_scales(const Binding& b) {
  std::vector<kernels::Fp8Scaling> weights;
  const auto& w = b.op.attributes.integers("weights");
  for (std::size_t i = 0; i < b.op.outputs.size(); ++i) {
    const std::int64_t* const at = w.data() + 6 * i;
    weights.push_back(
        {{b.input<float>(0) + at[0], at[1], at[2], at[3], at[4], at[5]}, out_vector<float>(b, i)});
  }
  return prepared(b, kernels::make_fp8_scales(weights));
}

Bound bind_fp8_encode(const Binding& b) {
  std::vector<kernels::Fp8Encoding> encodings;
  const auto& p = b.op.attributes.integers("pieces");
  for (std::size_t i = 0; i < p.size(); i += 5)
    encodings.push_back({{{b.input<bf16>(0) + p[i], p[i + 1]}, p[i + 2], p[i + 3]},
                         b.input<float>(static_cast<std::size_t>(p[i + 4])),
                         b.output<f8e4m3>(0) + p[i]});
  return prepared(b, kernels::make_fp8_encode(encodings));
}

}  // namespace ztrain::engine
