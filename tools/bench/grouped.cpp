// Speed of products of rows in groups on one core, beside one product of as many FLOPs:
// ztrain_grouped_bench [--benchmark_filter=...]. `of_one` is the ratio of the speeds. Groups have between
// half and one and a half times the mean number of rows.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/grouped/grouped.hpp"
#include "kernels/linear/linear.hpp"

namespace {

using namespace ztrain;
using namespace ztrain::kernels;

enum class Product { forward, grad_input, grad_weight };

std::vector<std::int32_t> offsets_of(const GroupedShape& s) {
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(s.groups + 1));
  for (std::int64_t e = 0; e <= s.groups; ++e) {
    const auto part = static_cast<double>(e) / static_cast<double>(s.groups);
    offsets[static_cast<std::size_t>(e)] =
        static_cast<std::int32_t>(static_cast<double>(s.rows) * (part / 2 + part * part / 2));
  }
  return offsets;
}

template <class F>
double seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
std::vector<T> values(std::int64_t count) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = T(static_cast<float>(i % 2001) / 1000 - 1);
  return result;
}

/// Arguments: groups, rows, in, out. Gradients of weights are fp32.
template <class T>
void grouped(benchmark::State& state, Product product) {
  const GroupedShape s{state.range(0), state.range(1), state.range(2), state.range(3)};
  const ExecHandle exec = make_exec();
  gemm_library(*exec).bf16 = usual_bf16_products();
  gemm_library(*exec).fp32 = usual_fp32_products();
  const DType type = dtype_of<T>();
  const LinearShape all{s.rows, s.in, s.out};
  std::unique_ptr<GroupedProduct> groups;
  std::unique_ptr<Gemm> one;
  if (product == Product::forward)
    groups = make_grouped_linear(s, type, false), one = make_linear(all, type, false);
  else if (product == Product::grad_input)
    groups = make_grouped_grad_input(s, type, false), one = make_linear_grad_input(all, type, false);
  else
    groups = make_grouped_grad_weight(s, type, DType::f32, false),
    one = make_linear_grad_weight(all, type, DType::f32, false);
  groups->prepare(*exec);
  one->prepare(*exec);
  const bool of_weights = product == Product::grad_weight;
  const auto a = values<T>(s.rows * std::max(s.in, s.out));
  const auto b = values<T>(of_weights ? s.rows * s.in : s.groups * s.in * s.out);
  std::vector<float> c(
      static_cast<std::size_t>(of_weights ? s.groups * s.in * s.out : s.rows * (s.in + s.out)));
  const std::int64_t bytes =
      std::max({gemm_workspace_bytes(s.rows, s.in, s.out, type, type, build_target()),
                gemm_workspace_bytes(s.rows, s.out, s.in, type, type, build_target()),
                gemm_workspace_bytes(s.out, s.in, s.rows, type, DType::f32, build_target())});
  std::vector<std::byte> workspace(static_cast<std::size_t>(bytes));
  const auto offsets = offsets_of(s);
  double of_groups = 1e9, of_one = 1e9;  // the shortest
  for (auto _ : state) {
    const double time = seconds([&] {
      groups->run(*exec, {offsets.data(), a.data(), b.data(), nullptr, c.data(), workspace.data()});
    });
    of_groups = std::min(of_groups, time);
    of_one = std::min(
        of_one, seconds([&] { one->run(*exec, a.data(), b.data(), nullptr, c.data(), workspace.data()); }));
    state.SetIterationTime(time);
  }
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * static_cast<double>(s.rows * s.in * s.out),
                                                benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_one"] = of_one / of_groups;
}

/// Qwen3-30B-A3B with 4,096 tokens and with 64, Mixtral 8x7B with 1,024, and both with one token.
void sizes(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Unit(benchmark::kMillisecond);
  b->Args({128, 32768, 2048, 768})->Args({128, 512, 2048, 768})->Args({8, 2048, 4096, 14336});
  b->Args({128, 8, 2048, 768})->Args({8, 2, 4096, 14336});
}

template <class T>
void add(const std::string& type) {
  const auto row = [&](const char* name, Product product) {
    benchmark::RegisterBenchmark((std::string(name) + "/" + type).c_str(), grouped<T>, product)->Apply(sizes);
  };
  row("grouped_linear", Product::forward);
  row("grouped_linear_grad_input", Product::grad_input);
  row("grouped_linear_grad_weight", Product::grad_weight);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  initialize_backend();
  add<float>("fp32");
  add<bf16>("bf16");
  add<f16>("fp16");
  benchmark::RunSpecifiedBenchmarks();
  finalize_backend();
}
