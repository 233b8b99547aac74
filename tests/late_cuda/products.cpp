// The product's matrix products for GPUs on the late cuBLASLt: that the library is told of the right layouts,
// transpositions, types, scales and biases, and given what it may be given.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/gemm_fp8.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/linear/linear.hpp"
#include "tests/late_cuda/late_cublaslt.hpp"
#include "tests/late_cuda/late_cuda.hpp"
#include "tests/support/product_case.hpp"

namespace ztrain::kernels {

/// Of the tests in this file: a stream, and no backend.
struct Exec {
  Exec() {
    REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess, "no stream");
  }
  ~Exec() { cudaStreamDestroy(stream); }
  Exec(const Exec&) = delete;
  Exec& operator=(const Exec&) = delete;

  cudaStream_t stream = nullptr;
  std::shared_ptr<GemmLibrary> library = std::make_shared<GemmLibrary>();
  int loops = 0;  ///< that ran in the place of the library's products
};
void* native_stream(const Exec& exec) {
  return exec.stream;
}
std::shared_ptr<GemmLibrary>& gemm_library_slot(Exec& exec) {
  return exec.library;
}

namespace products_test {
namespace {

class Loop : public Gemm {
 public:
  void run(Exec& exec, const void*, const void*, const void*, void*, void*) override { ++exec.loops; }
  std::string implementation() const override { return "loop"; }
};

using namespace ztrain::test;

/// The device's copy of an array, `shift` elements from where the library likes it.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const Array<T>& values, std::size_t shift = 0) : host_(values), shift_(shift) {
    void* data = nullptr;
    REQUIRE(cudaMalloc(&data, (host_.size() + shift) * sizeof(T)) == cudaSuccess, "no memory");
    data_ = static_cast<T*>(data);
    cudaMemcpy(this->data(), host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return data_ + shift_; }
  Array<T> read() const {
    Array<T> values = host_;
    cudaDeviceSynchronize();
    cudaMemcpy(values.data(), data(), values.size() * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  Array<T> host_;
  std::size_t shift_;
  T* data_ = nullptr;
};

class CublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    late_cuda::restart({.seed = 5});
    late_cublaslt::configure({});
    // What a program reserves.
    const std::int64_t bytes = std::min(gemm_workspace_bytes(8, 8, 8, DType::bf16, DType::bf16, Target::cuda),
                                        gemm_fp8_workspace_bytes(Target::cuda));
    ASSERT_EQ(cudaMalloc(&workspace_, static_cast<std::size_t>(bytes)), cudaSuccess);
  }
  void TearDown() override { cudaFree(workspace_); }

  Exec exec_;
  void* workspace_ = nullptr;
};

/// The shape's product by this Gemm, of matrices that begin `shift` elements too late.
template <class In, class Out>
void check(Exec& exec, Gemm& gemm, const GemmShape& shape, void* workspace, std::size_t shift = 0) {
  const GemmShape s = complete(shape);
  SCOPED_TRACE(::testing::Message() << name_of(dtype_of<In>()) << " to " << name_of(dtype_of<Out>()) << " m "
                                    << s.m << " n " << s.n << " k " << s.k << " transposed " << s.trans_a
                                    << s.trans_b << " accumulate " << s.accumulate << " bias " << s.bias);
  ProductCase<In, Out> product(s);
  const OnDevice<In> a(product.a, shift), b(product.b, shift), bias(product.bias, shift);
  const OnDevice<Out> c(product.c, shift);
  gemm.prepare(exec, shift == 0 ? Starts::aligned : Starts::anywhere);
  gemm.run(exec, a.data(), b.data(), s.bias ? bias.data() : nullptr, c.data(), workspace);
  product.c = c.read();
  const bool tf32 = std::is_same_v<In, float> && exec.library->tf32;
  product.expect_result(tf32 ? 8e-3 * std::sqrt(static_cast<double>(s.k)) : sum_error<In>(s.k + 2));
}

/// A layer's three products, with what a model asks of them.
template <class T, class G>
void check_layer(Exec& exec, void* workspace, const LinearShape& layer) {
  const auto [tokens, in, out] = layer;
  for (const bool flag : {false, true}) {
    if (!flag || !std::is_same_v<T, double>)
      check<T, T>(exec, *make_linear(layer, dtype_of<T>(), flag),
                  {.trans_b = true, .m = tokens, .n = out, .k = in, .bias = flag}, workspace);
    check<T, T>(exec, *make_linear_grad_input(layer, dtype_of<T>(), flag),
                {.m = tokens, .n = in, .k = out, .accumulate = flag}, workspace);
    check<T, G>(exec, *make_linear_grad_weight(layer, dtype_of<T>(), dtype_of<G>(), flag),
                {.trans_a = true, .m = out, .n = in, .k = tokens, .accumulate = flag}, workspace);
  }
}

TEST_F(CublasLt, ProductsOfALayer) {
  for (const LinearShape& layer : {LinearShape{24, 40, 56}, {1, 16, 8}, {7, 5, 3}}) {
    check_layer<float, float>(exec_, workspace_, layer);
    check_layer<bf16, float>(exec_, workspace_, layer);
    check_layer<bf16, bf16>(exec_, workspace_, layer);
    check_layer<f16, float>(exec_, workspace_, layer);
    check_layer<f16, f16>(exec_, workspace_, layer);
    check_layer<double, double>(exec_, workspace_, layer);
  }
  EXPECT_EQ(late_cublaslt::products(), 3 * (5 * 6 + 5));
  EXPECT_EQ(exec_.loops, 0);
  EXPECT_EQ(late_cublaslt::failure(), "");
}

TEST_F(CublasLt, RowsOfAnotherLengthThanTheMatrix) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      GemmShape s = complete(GemmShape{.trans_a = trans_a, .trans_b = trans_b, .m = 10, .n = 18, .k = 12});
      s.lda += 8;
      s.ldb += 16;
      s.ldc += 24;
      check<bf16, bf16>(exec_, *make_gemm(s, DType::bf16, DType::bf16), s, workspace_);
      check<float, float>(exec_, *make_gemm(s, DType::f32, DType::f32), s, workspace_);
    }
}

TEST_F(CublasLt, Tf32RoundsTheFactorsOfFp32) {
  exec_.library->tf32 = true;
  const GemmShape s{.m = 9, .n = 17, .k = 33};
  check<float, float>(exec_, *make_gemm(s, DType::f32, DType::f32), s, workspace_);
  check<bf16, bf16>(exec_, *make_gemm(s, DType::bf16, DType::bf16), s, workspace_);
}

TEST_F(CublasLt, AnAlgorithmIsMeasuredOnceAndTakenFromTheTableThen) {
  exec_.library->tune = true;
  exec_.library->algorithms = std::make_shared<AlgorithmTable>(*algorithm_home());
  const GemmShape s{.trans_b = true, .m = 16, .n = 24, .k = 32, .bias = true};
  check<bf16, bf16>(exec_, *make_gemm(s, DType::bf16, DType::bf16), s, workspace_);
  const int measured = late_cublaslt::products();
  EXPECT_GT(measured, 4);
  check<bf16, bf16>(exec_, *make_gemm(s, DType::bf16, DType::bf16), s, workspace_);
  EXPECT_EQ(late_cublaslt::products(), measured + 1);
  EXPECT_EQ(late_cublaslt::failure(), "");
}

TEST_F(CublasLt, WhatTheLibraryHasNotIsALoopThatIsSaid) {
  const GemmShape biased{.m = 8, .n = 16, .k = 8, .bias = true};
  const auto other_type = make_gemm(biased, DType::bf16, DType::f32);
  other_type->prepare(exec_);
  EXPECT_TRUE(other_type->slow());
  EXPECT_EQ(other_type->implementation().rfind("a loop without tensor cores: cuBLASLt adds no bias", 0), 0u);
  late_cublaslt::configure({.alignment = 32});
  const auto plain = make_gemm({.m = 8, .n = 16, .k = 8}, DType::bf16, DType::bf16);
  plain->prepare(exec_);
  EXPECT_TRUE(plain->slow());
  EXPECT_NE(plain->implementation().find("has no algorithm"), std::string::npos);
  const auto fp32 = make_gemm({.m = 8, .n = 16, .k = 8}, DType::f32, DType::f32);
  fp32->prepare(exec_);
  EXPECT_EQ(fp32->implementation(), "cuBLASLt");
}

TEST_F(CublasLt, MatricesThatStartAnywhere) {
  const GemmShape s{.trans_b = true, .m = 8, .n = 16, .k = 8, .bias = true};
  check<float, float>(exec_, *make_gemm(s, DType::f32, DType::f32), s, workspace_, 1);
  check<bf16, bf16>(exec_, *make_gemm(s, DType::bf16, DType::bf16), s, workspace_, 1);
  EXPECT_EQ(exec_.loops, 0);
  EXPECT_EQ(late_cublaslt::failure(), "");
}

TEST_F(CublasLt, MatricesThatStartWhereItHasNoAlgorithmAreSaidOrRefused) {
  late_cublaslt::configure({.alignment = 16});
  const GemmShape s = complete(GemmShape{.m = 8, .n = 16, .k = 8});
  const ProductCase<bf16, bf16> product(s);
  const OnDevice<bf16> a(product.a, 1), b(product.b), c(product.c);
  const auto run = [&](Gemm& gemm) { gemm.run(exec_, a.data(), b.data(), nullptr, c.data(), workspace_); };
  const auto foreseen = make_gemm(s, DType::bf16, DType::bf16),
             unforeseen = make_gemm(s, DType::bf16, DType::bf16);
  foreseen->prepare(exec_, Starts::anywhere);
  EXPECT_TRUE(foreseen->slow());
  run(*foreseen);
  EXPECT_EQ(exec_.loops, 1);
  unforeseen->prepare(exec_);
  EXPECT_FALSE(unforeseen->slow());
  EXPECT_THROW(run(*unforeseen), Error);
}

/// Codes of all magnitudes, with scales.
template <class T>
Array<T> random_codes(std::int64_t count, std::uint64_t seed) {
  return random<T>(count, seed, 8);
}
Array<float> random_scales(std::int64_t count, std::uint64_t seed) {
  Array<float> scales(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = std::exp2(std::round(static_cast<float>(normal(seed, 7, i))));
  return scales;
}

template <class A, class B, class Out>
void check_fp8(Exec& exec, const GemmFp8Shape& shape, void* workspace) {
  const GemmFp8Shape s = complete(shape);
  const bool rowwise = s.scales == Fp8Scales::rowwise;
  SCOPED_TRACE(::testing::Message() << name_of(dtype_of<A>()) << " x " << name_of(dtype_of<B>()) << " to "
                                    << name_of(dtype_of<Out>()) << " rowwise " << rowwise << " accumulate "
                                    << s.accumulate << " bias " << s.bias);
  const auto a = random_codes<A>(s.m * s.lda, 1);
  const auto b = random_codes<B>(s.n * s.ldb, 2);
  const auto a_scale = random_scales(rowwise ? s.m : 1, 3), b_scale = random_scales(rowwise ? s.n : 1, 4);
  const auto bias = random<bf16>(s.n, 5);
  const auto c = random<Out>(s.m * s.ldc, 6);
  std::vector<double> expected = doubles(c);
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t d = 0; d < s.k; ++d)
        sum += static_cast<double>(static_cast<float>(a[i * s.lda + d])) *
               static_cast<double>(static_cast<float>(b[j * s.ldb + d]));
      double& to = expected[i * s.ldc + j];
      to = sum * static_cast<double>(a_scale[rowwise ? i : 0]) *
               static_cast<double>(b_scale[rowwise ? j : 0]) +
           (s.bias ? static_cast<double>(bias[j]) : 0) + (s.accumulate ? to : 0);
    }
  const OnDevice<A> a_there(a);
  const OnDevice<B> b_there(b);
  const OnDevice<float> a_scale_there(a_scale), b_scale_there(b_scale);
  const OnDevice<bf16> bias_there(bias);
  const OnDevice<Out> c_there(c);
  const auto gemm = make_gemm_fp8(s, {dtype_of<A>(), dtype_of<B>(), dtype_of<Out>()});
  gemm->prepare(exec);
  gemm->run(exec, a_there.data(), a_scale_there.data(), b_there.data(), b_scale_there.data(),
            s.bias ? bias_there.data() : nullptr, c_there.data(), workspace);
  expect_close(c_there.read(), expected, 1e-3, "c");
}

TEST_F(CublasLt, ProductsOfCodes) {
  for (const Fp8Scales scales : {Fp8Scales::tensorwise, Fp8Scales::rowwise})
    for (const bool flag : {false, true}) {
      // Forward, the gradient of the input, and that of the weight.
      GemmFp8Shape s{.m = 24, .n = 48, .k = 32, .scales = scales, .bias = flag, .fast_accumulation = true};
      check_fp8<f8e4m3, f8e4m3, bf16>(exec_, s, workspace_);
      s = {.m = 7, .n = 32, .k = 48, .lda = 64, .ldb = 80, .ldc = 40, .scales = scales, .accumulate = flag};
      check_fp8<f8e5m2, f8e4m3, bf16>(exec_, s, workspace_);
      s = {.m = 48, .n = 32, .k = 16, .scales = scales, .accumulate = flag};
      check_fp8<f8e5m2, f8e4m3, float>(exec_, s, workspace_);
      check_fp8<f8e4m3, f8e5m2, float>(exec_, s, workspace_);
    }
  EXPECT_EQ(late_cublaslt::products(), 16);
  EXPECT_EQ(late_cublaslt::failure(), "");
}

TEST_F(CublasLt, CodesThatADeviceLacksAreRefusedAtTheStart) {
  const auto refusal = [&](int capability, Fp8Scales scales) -> std::string {
    late_cublaslt::configure({.capability = capability});
    const auto gemm = make_gemm_fp8({.m = 16, .n = 16, .k = 16, .scales = scales},
                                    {DType::f8e4m3, DType::f8e4m3, DType::bf16});
    try {
      gemm->prepare(exec_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(89, Fp8Scales::tensorwise), "");
  EXPECT_NE(refusal(80, Fp8Scales::tensorwise).find("cuBLASLt has none on this GPU"), std::string::npos);
  EXPECT_NE(refusal(100, Fp8Scales::rowwise).find("on compute capability 9.0"), std::string::npos);
}

TEST_F(CublasLt, RunOnTheMultiprocessorsThatCommunicationLeaves) {
  exec_.library->algorithms = std::make_shared<AlgorithmTable>(AlgorithmHome{});
  exec_.library->tune = true;
  const auto keys = [&] { return exec_.library->algorithms->to_text(); };
  for (const int left : {0, 116}) {
    exec_.library->multiprocessors = left;
    check<bf16, bf16>(exec_, *make_gemm({.m = 16, .n = 8, .k = 8}, DType::bf16, DType::bf16),
                      {.m = 16, .n = 8, .k = 8}, workspace_);
    EXPECT_EQ(late_cublaslt::multiprocessors(), left);
    check_fp8<f8e4m3, f8e4m3, bf16>(exec_, {.m = 16, .n = 32, .k = 16}, workspace_);
    EXPECT_EQ(late_cublaslt::multiprocessors(), left);
    EXPECT_EQ(keys().find("on 116 multiprocessors") != std::string::npos, left != 0) << keys();
  }
  EXPECT_EQ(late_cublaslt::failure(), "");
}

TEST_F(CublasLt, AreCaptured) {
  const GemmShape s = complete(GemmShape{.m = 8, .n = 8, .k = 8, .accumulate = true});
  ProductCase<bf16, float> product(s);
  const OnDevice<bf16> a(product.a), b(product.b);
  const OnDevice<float> c(product.c);
  const auto gemm = make_gemm(s, DType::bf16, DType::f32);
  gemm->prepare(exec_);
  gemm->run(exec_, a.data(), b.data(), nullptr, c.data(), workspace_);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(exec_.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  gemm->run(exec_, a.data(), b.data(), nullptr, c.data(), workspace_);
  ASSERT_EQ(cudaStreamEndCapture(exec_.stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, exec_.stream), cudaSuccess);
  const Array<float> first = product.c;
  product.c = c.read();
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_NEAR(static_cast<double>(product.c[i]), 2 * product.expected[i] - static_cast<double>(first[i]),
                1e-4);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace products_test

std::unique_ptr<Gemm> make_gemm_reference(const GemmShape&, DType, DType) {
  return std::make_unique<products_test::Loop>();
}

}  // namespace ztrain::kernels
