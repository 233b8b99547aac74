#include <oneapi/dnnl/dnnl_debug.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <array>

#include "base/error.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_half.hpp"
#include "kernels/gemm_row.hpp"

namespace ztrain::kernels {
namespace {

dnnl::memory::data_type library_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t cols, std::int64_t stride, bool transposed,
                          DType type) {
  return dnnl::memory::desc({rows, cols}, library_type(type),
                            transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1});
}

/// Made with the library's C++ interface, run through its C interface on arguments that were laid out ahead.
class GemmOneDnn : public Gemm {
 public:
  GemmOneDnn(const dnnl::engine& engine, const dnnl::matmul::primitive_desc& desc, const GemmShape& shape)
      : has_bias_(shape.bias),
        stream_(engine),
        product_(desc),
        a_(desc.src_desc(), engine, nullptr),
        b_(desc.weights_desc(), engine, nullptr),
        c_(desc.dst_desc(), engine, nullptr),
        scratchpad_(desc.scratchpad_desc(), engine, nullptr) {
    if (has_bias_) bias_ = dnnl::memory(desc.query_md(dnnl::query::weights_md, 1), engine, nullptr);
    arguments_ = {{{DNNL_ARG_SRC, a_.get()},
                   {DNNL_ARG_WEIGHTS, b_.get()},
                   {DNNL_ARG_DST, c_.get()},
                   {DNNL_ARG_SCRATCHPAD, scratchpad_.get()},
                   {DNNL_ARG_BIAS, has_bias_ ? bias_.get() : nullptr}}};
  }

  void run(Exec&, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    bind(a_, const_cast<void*>(a));
    bind(b_, const_cast<void*>(b));
    bind(c_, c);
    bind(scratchpad_, workspace);
    if (has_bias_) bind(bias_, const_cast<void*>(bias));
    const int count = static_cast<int>(arguments_.size()) - (has_bias_ ? 0 : 1);
    const dnnl_status_t status =
        dnnl_primitive_execute(product_.get(), stream_.get(), count, arguments_.data());
    REQUIRE(status == dnnl_success, "matrix product: oneDNN failed with {}", dnnl_status2str(status));
  }

 private:
  static void bind(dnnl::memory& memory, void* pointer) {
    const dnnl_status_t status = dnnl_memory_set_data_handle(memory.get(), pointer);
    REQUIRE(status == dnnl_success, "matrix product: oneDNN refused a buffer with {}",
            dnnl_status2str(status));
  }

  bool has_bias_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  dnnl::memory a_, b_, c_, scratchpad_, bias_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
};

bool fits(const dnnl::matmul::primitive_desc& desc, const GemmShape& s, DType in, DType out) {
  return static_cast<std::int64_t>(desc.scratchpad_desc().get_size()) <=
         gemm_workspace_bytes(s.m, s.n, s.k, in, out, Target::cpu);
}

/// Null if the library has no such product on this processor, or none whose scratchpad fits the reservation.
std::unique_ptr<Gemm> try_onednn(const GemmShape& s, DType in, DType out) {
  const auto a = matrix(s.m, s.k, s.lda, s.trans_a, in);
  const auto b = matrix(s.k, s.n, s.ldb, s.trans_b, in);
  const auto c = matrix(s.m, s.n, s.ldc, false, out);
  const auto bias = matrix(1, s.n, s.n, false, in);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops operations;
    operations.append_sum(1.0f);
    attributes.set_post_ops(operations);
  }
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  try {
    // Named, since the iterator behind next_impl() keeps reading it.
    const dnnl::matmul::desc product =
        s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    dnnl::matmul::primitive_desc desc(product, attributes, engine);
    while (!fits(desc, s, in, out))
      if (!desc.next_impl()) return nullptr;
    return std::make_unique<GemmOneDnn>(engine, desc, s);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    fail("matrix product {} x {} x {}, {} -> {}: oneDNN: {}", s.m, s.n, s.k, name_of(in), name_of(out),
         error.what());
  }
}

}  // namespace

std::unique_ptr<Gemm> make_gemm(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  if (is_row_product(s, in, out)) return make_gemm_row(s, in, out);
  if (in == DType::f16) return make_gemm_half(s, out);
  const bool offered = (in == DType::f32 && out == DType::f32) || (in == DType::bf16 && out == DType::bf16) ||
                       (in == DType::bf16 && out == DType::f32);
  if (offered) {
    if (auto gemm = try_onednn(s, in, out)) return gemm;
  }
  return make_gemm_reference(s, in, out);
}

}  // namespace ztrain::kernels
