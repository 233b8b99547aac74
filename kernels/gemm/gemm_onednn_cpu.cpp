#include "kernels/gemm/gemm_ways.hpp"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/gemm/gemm_library.hpp"

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

/// Whether the library's sets of instructions are this processor's. On others it names sets all the same.
#if defined(__x86_64__)
constexpr bool has_x86_sets = true;
#else
constexpr bool has_x86_sets = false;
#endif

/// What the library generates code for: of the processor, or of ONEDNN_MAX_CPU_ISA.
const char* instructions() {
  if (!has_x86_sets) return "aarch64";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2";
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    default:
      return "avx512_core_amx";
  }
}

/// A set of instructions is a set of bits.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return has_x86_sets && (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
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
        scratchpad_(desc.scratchpad_desc(), engine, nullptr),
        implementation_(fmt::format("oneDNN {}, {}", desc.impl_info_str(), instructions())) {
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

  std::string implementation() const override { return implementation_; }

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
  std::string implementation_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
};

bool fits(const dnnl::matmul::primitive_desc& desc, const GemmShape& s, DType in, DType out) {
  return static_cast<std::int64_t>(desc.scratchpad_desc().get_size()) <=
         gemm_workspace_bytes(s.m, s.n, s.k, in, out, Target::cpu);
}

dnnl::primitive_attr attributes_of(const GemmShape& s) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops operations;
    operations.append_sum(1.0f);
    attributes.set_post_ops(operations);
  }
  return attributes;
}

/// The library proposes its implementations in its own order, the last of which is a plain loop that is
/// thousands of times slower: never that one. For fp32 its BLAS comes before what it proposes first: it
/// copies both operands into panels, so that it keeps its speed where rows lie a power of two apart, which
/// alias in the caches (measured on AVX-512 over the products of a 100M model: 149 to 167 GFLOP/s, against
/// 137 to 156). For bf16 it is the other way round: its BLAS widens elements where the processor cannot
/// multiply them.
std::optional<dnnl::matmul::primitive_desc> choose(const dnnl::matmul::desc& product, const GemmShape& s,
                                                   DType in, DType out, const dnnl::engine& engine) {
  std::optional<dnnl::matmul::primitive_desc> first;
  dnnl::matmul::primitive_desc desc(product, attributes_of(s), engine);
  do {
    const std::string_view name = desc.impl_info_str();
    const bool blas = name.starts_with("gemm:");
    if (name.find("ref") != std::string_view::npos || !fits(desc, s, in, out)) continue;
    if (blas && in == DType::f32) return desc;
    if (!first && !(blas && in == DType::bf16)) first = desc;
  } while (desc.next_impl());
  return first;
}

}  // namespace

bool multiplies_bf16() {
  return has(dnnl::cpu_isa::avx512_core_bf16);
}

bool multiplies_tiles() {
  return has(dnnl::cpu_isa::avx512_core_amx);
}

std::string instructions_of(DType parameters) {
#if defined(__AVX512F__)
  const char* const compiled = "AVX-512";
#elif defined(__AVX2__)
  const char* const compiled = "AVX2";
#elif defined(__aarch64__)
  const char* const compiled = "aarch64, NEON";
#else
  const char* const compiled = "any x86-64";
#endif
  if (parameters == DType::f64) return compiled;
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("{}; oneDNN {}.{}.{} for {}", compiled, version.major, version.minor, version.patch,
                     instructions());
}

Bf16Products usual_bf16_products() {
#if defined(__x86_64__)
  if (multiplies_bf16() && (multiplies_tiles() || !__builtin_cpu_is("intel"))) return Bf16Products::native;
#endif
  return Bf16Products::widened;
}

Fp32Products usual_fp32_products() {
  return splits_fp32() ? Fp32Products::split : Fp32Products::native;
}

std::unique_ptr<Gemm> make_gemm_onednn(const GemmShape& s, DType in, DType out) {
  const auto a = matrix(s.m, s.k, s.lda, s.trans_a, in);
  const auto b = matrix(s.k, s.n, s.ldb, s.trans_b, in);
  const auto c = matrix(s.m, s.n, s.ldc, false, out);
  const auto bias = matrix(1, s.n, s.n, false, in);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  try {
    // Named, since the iterator behind next_impl() keeps reading it.
    const dnnl::matmul::desc product =
        s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const auto desc = choose(product, s, in, out, engine);
    return desc ? std::make_unique<GemmOneDnn>(engine, *desc, s) : nullptr;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    fail("matrix product {} x {} x {}, {} -> {}: oneDNN: {}", s.m, s.n, s.k, name_of(in), name_of(out),
         error.what());
  }
}

}  // namespace ztrain::kernels
