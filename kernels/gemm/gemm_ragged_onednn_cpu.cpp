// oneDNN's products whose sizes are known only when they run: both are its BLAS, which has kernels for tiles
// and none for shapes.

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <array>

#include "base/error.hpp"
#include "kernels/gemm/gemm_half_panels.hpp"
#include "kernels/gemm/gemm_ragged.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {
namespace {

/// Gives every row of C its bias, or adds it.
void write_bias(const GemmShape& s, const float* __restrict bias, float* c) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    float* __restrict to = c + i * s.ldc;
    if (s.accumulate)
      for (std::int64_t j = 0; j < s.n; ++j) to[j] += bias[j];
    else
      std::copy_n(bias, s.n, to);
  }
}

using dnnl::memory;

/// fp32 results are summed where they belong; others in panels, in the workspace.
template <class Out>
class RaggedOneDnn : public RaggedGemm {
 public:
  explicit RaggedOneDnn(const GemmShape& s)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), stride_(direct ? s.ldc : std::min(cols, s.n)) {
    constexpr memory::dim any = DNNL_RUNTIME_DIM_VAL;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (direct && s.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.0f);
      attributes.set_post_ops(operations);
    }
    const dnnl::matmul::desc product(side(s.trans_a, any, any, s.lda), side(s.trans_b, any, any, s.ldb),
                                     sums(any, any));
    const dnnl::matmul::primitive_desc desc(product, attributes, engine_);
    product_ = dnnl::matmul(desc);
    scratchpad_ = memory(desc.scratchpad_desc(), engine_, nullptr);
    implementation_ = fmt::format("oneDNN {}, any size", desc.impl_info_str());
    ASSERT(desc.scratchpad_desc().get_size() <= std::size_t{gemm_base_workspace_bytes},
           "matrix product of any size: oneDNN wants {} bytes", desc.scratchpad_desc().get_size());
  }

  void run(Exec& exec, const GemmShape& s, const GemmOperands& o) override {
    scratchpad_.set_data_handle(o.workspace);
    if constexpr (direct) {
      multiply(s, o.a, o.b, o.c);
    } else {
      auto* const panel = reinterpret_cast<float*>(static_cast<std::byte*>(o.workspace) +
                                                   gemm_half_places(s.m, s.n, s.k, DType::bf16).c);
      for (std::int64_t j = 0; j < s.n; j += cols)
        for (std::int64_t i = 0; i < s.m; i += rows)
          add_panel(exec, s, o, {i, std::min(rows, s.m - i), j, std::min(cols, s.n - j), s.ldc}, panel);
    }
  }

  std::string implementation() const override { return implementation_; }

 private:
  static constexpr bool direct = std::is_same_v<Out, float>;
  static constexpr std::int64_t rows = gemm_panel_rows, cols = gemm_panel_cols;

  static memory::desc side(bool transposed, memory::dim m, memory::dim n, std::int64_t stride) {
    return {{m, n}, memory::data_type::bf16, transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
  }
  memory::desc sums(memory::dim m, memory::dim n) const {
    return {{m, n}, memory::data_type::f32, {stride_, 1}};
  }

  void multiply(const GemmShape& s, const void* a, const void* b, void* c) {
    const memory left(side(s.trans_a, s.m, s.k, s.lda), engine_, const_cast<void*>(a));
    const memory right(side(s.trans_b, s.k, s.n, s.ldb), engine_, const_cast<void*>(b));
    const memory result(sums(s.m, s.n), engine_, c);
    const std::array<dnnl_exec_arg_t, 4> arguments{{{DNNL_ARG_SRC, left.get()},
                                                    {DNNL_ARG_WEIGHTS, right.get()},
                                                    {DNNL_ARG_DST, result.get()},
                                                    {DNNL_ARG_SCRATCHPAD, scratchpad_.get()}}};
    const dnnl_status_t status = dnnl_primitive_execute(product_.get(), stream_.get(),
                                                        static_cast<int>(arguments.size()), arguments.data());
    REQUIRE(status == dnnl_success, "matrix product: oneDNN failed with {}", dnnl_status2str(status));
  }

  /// Forms one window of C, over all of k.
  void add_panel(Exec& exec, const GemmShape& whole, const GemmOperands& o, const gemm_half::Window& w,
                 float* panel) {
    GemmShape s = whole;
    s.m = w.rows;
    s.n = w.cols;
    const auto* const a = static_cast<const bf16*>(o.a) + w.row * (s.trans_a ? 1 : s.lda);
    const auto* const b = static_cast<const bf16*>(o.b) + w.col * (s.trans_b ? s.ldb : 1);
    multiply(s, a, b, panel);
    const bf16* const bias = s.bias ? static_cast<const bf16*>(o.bias) + w.col : nullptr;
    auto* const c = static_cast<Out*>(o.c) + w.row * w.stride + w.col;
    for_rows(exec, w.rows, [=, adds = s.accumulate, stride = stride_](std::int64_t i) {
      float* const sum = panel + i * stride;
      Out* const to = c + i * w.stride;
      if (bias) add(bias, sum, w.cols);
      if (adds) add(to, sum, w.cols);
      narrow(sum, to, w.cols);
    });
  }
  static void add(const bf16* __restrict from, float* __restrict to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += static_cast<float>(from[i]);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::int64_t stride_;  ///< of the rows of fp32 sums, which are C's or a panel's
  dnnl::matmul product_;
  memory scratchpad_;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<RaggedGemm> make_ragged_onednn(const GemmShape& s, DType out) {
  if (out == DType::f32) return std::make_unique<RaggedOneDnn<float>>(s);
  return std::make_unique<RaggedOneDnn<bf16>>(s);
}

void multiply_sgemm(const GemmShape& s, const GemmOperands& o) {
  auto* const c = static_cast<float*>(o.c);
  if (s.bias) write_bias(s, static_cast<const float*>(o.bias), c);
  const dnnl_status_t status = dnnl_sgemm(
      s.trans_a ? 'T' : 'N', s.trans_b ? 'T' : 'N', s.m, s.n, s.k, 1, static_cast<const float*>(o.a), s.lda,
      static_cast<const float*>(o.b), s.ldb, s.bias || s.accumulate ? 1.0f : 0.0f, c, s.ldc);
  REQUIRE(status == dnnl_success, "matrix product: oneDNN failed with {}", dnnl_status2str(status));
}

}  // namespace ztrain::kernels
