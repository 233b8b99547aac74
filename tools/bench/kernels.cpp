// Speed of the heavy kernels on one core: ztrain_kernel_bench [--benchmark_filter=...]. Attention counts the
// FLOPs of a causal kernel, half of the square's; what one token takes counts the bytes that it must read.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "base/block_layout.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/linear/linear.hpp"

namespace {

using namespace ztrain;
using namespace ztrain::kernels;

template <class T>
std::vector<T> values(std::int64_t count) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = T(static_cast<float>(i * 2654435761u % 2001) / 1000 - 1);
  return result;
}

void report(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

enum class Product { forward, grad_input, grad_input_add, grad_weight, grad_weight_add };

/// Arguments: tokens, out, in. Gradients of weights are fp32.
template <class T>
void linear(benchmark::State& state, Product product) {
  const LinearShape s{state.range(0), state.range(2), state.range(1)};
  const ExecHandle exec = make_exec();
  const DType type = dtype_of<T>();
  const bool add = product == Product::grad_input_add || product == Product::grad_weight_add;
  const auto x = values<T>(s.tokens * s.in), y = values<T>(s.tokens * s.out), w = values<T>(s.in * s.out);
  std::vector<float> result(static_cast<std::size_t>(std::max({x.size(), y.size(), w.size()})));
  const std::int64_t bytes =
      std::max({gemm_workspace_bytes(s.tokens, s.out, s.in, type, type, build_target()),
                gemm_workspace_bytes(s.tokens, s.in, s.out, type, type, build_target()),
                gemm_workspace_bytes(s.out, s.in, s.tokens, type, DType::f32, build_target())});
  std::vector<std::byte> workspace(static_cast<std::size_t>(bytes));
  const auto go = [&](Gemm& gemm, const T* a, const T* b) {
    for (auto _ : state) gemm.run(*exec, a, b, nullptr, result.data(), workspace.data());
  };
  if (product == Product::forward) {
    go(*make_linear(s, type, false), x.data(), w.data());
  } else if (product == Product::grad_input || product == Product::grad_input_add) {
    go(*make_linear_grad_input(s, type, add), y.data(), w.data());
  } else {
    go(*make_linear_grad_weight(s, type, DType::f32, add), y.data(), x.data());
  }
  report(state, 2.0 * static_cast<double>(s.tokens * s.in * s.out));
}

/// Returns a layout of blocks of 64 tokens of which each row has the first, its own and the `before` ones
/// before it; empty, as the view of all blocks has it, if `before` is negative.
std::vector<std::int64_t> layout_of(std::int64_t length, std::int64_t before) {
  if (before < 0) return {};
  std::vector<std::int64_t> layout{64, length};
  const std::int64_t blocks = length / 64, words = BlockLayout::words_of(blocks);
  layout.resize(static_cast<std::size_t>(BlockLayout::header_words + blocks * words));
  for (std::int64_t row = 0; row < blocks; ++row)
    for (std::int64_t column = 0; column <= row; ++column)
      if (column == 0 || row - column <= before)
        layout[static_cast<std::size_t>(BlockLayout::header_words + row * words + column / 64)] |=
            static_cast<std::int64_t>(std::uint64_t{1} << (column % 64));
  return layout;
}

/// Arguments: sequences, sequence length, heads, key-value heads, head dim, and the blocks before its own
/// that a block sees beside the first; -1: all.
template <class T>
void attention(benchmark::State& state, bool backward) {
  const std::int64_t length = state.range(1), tokens = state.range(0) * length;
  AttentionShape s{tokens, state.range(2), state.range(3), state.range(4)};
  const std::vector<std::int64_t> layout = layout_of(length, state.range(5));
  s.layout = BlockLayout::of(layout);
  const std::int64_t width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const ExecHandle exec = make_exec();
  const auto q = values<T>(tokens * width), k = values<T>(tokens * kv_width), v = k, dout = q;
  auto o = q, dq = q, dk = k, dv = k;
  std::vector<acc_t<T>> lse(static_cast<std::size_t>(tokens * s.heads));
  std::vector<std::int32_t> start;
  for (std::int64_t t = 0; t < tokens; ++t) start.push_back(static_cast<std::int32_t>(t / length * length));
  std::vector<std::byte> workspace(static_cast<std::size_t>(
      attention_backward_workspace_bytes(tokens, s.heads, s.head_dim, dtype_of<T>())));
  const AttentionInput<T> input{s,
                                {q.data(), tokens, width},
                                {k.data(), tokens, kv_width},
                                {v.data(), tokens, kv_width},
                                {start.data(), tokens}};
  attention_forward<T>(*exec, input, {o.data(), tokens, width}, {lse.data(), tokens, s.heads});
  for (auto _ : state) {
    if (backward) {
      attention_backward<T>(*exec, input, {o.data(), tokens, width}, {lse.data(), tokens, s.heads},
                            {dout.data(), tokens, width}, {dq.data(), tokens, width},
                            {dk.data(), tokens, kv_width}, {dv.data(), tokens, kv_width},
                            {workspace.data(), static_cast<std::int64_t>(workspace.size())});
    } else {
      attention_forward<T>(*exec, input, {o.data(), tokens, width}, {lse.data(), tokens, s.heads});
    }
  }
  const double pairs = s.layout.is_on() ? static_cast<double>(tokens) * s.layout.mean_keys()
                                        : static_cast<double>(tokens * (length + 1)) / 2;
  report(state, (backward ? 10.0 : 4.0) * static_cast<double>(width) * pairs);
}

void report_bytes(benchmark::State& state, std::size_t bytes) {
  state.counters["B/s"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
}

/// One new token. Arguments: cached tokens, heads, key-value heads, head dim.
template <class T>
void attention_cached_token(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const AttentionShape s{1, state.range(1), state.range(2), state.range(3)};
  const std::int64_t width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const ExecHandle exec = make_exec();
  const auto q = values<T>(width), k = values<T>(rows * kv_width), v = k;
  auto o = q;
  const auto begin = static_cast<std::int32_t>(rows - 1);
  const CachedAttentionInput<T> input{s,
                                      {q.data(), 1, width},
                                      {k.data(), rows * s.kv_heads, s.head_dim},
                                      {v.data(), rows * s.kv_heads, s.head_dim},
                                      {&begin, 1}};
  for (auto _ : state) attention_cached<T>(*exec, input, {o.data(), 1, width});
  report_bytes(state, 2 * k.size() * sizeof(T));
}

/// One token. Arguments: out, in.
template <class T>
void linear_token(benchmark::State& state) {
  const LinearShape s{1, state.range(1), state.range(0)};
  const ExecHandle exec = make_exec();
  const auto x = values<T>(s.in), w = values<T>(s.in * s.out);
  std::vector<T> y(static_cast<std::size_t>(s.out));
  const auto gemm = make_linear(s, dtype_of<T>(), false);
  for (auto _ : state) gemm->run(*exec, x.data(), w.data(), nullptr, y.data(), nullptr);
  report_bytes(state, w.size() * sizeof(T));
}

/// Arguments: tokens, vocabulary, width.
template <class T>
void head_loss(benchmark::State& state) {
  const HeadLossShape s{state.range(0), state.range(1), state.range(2)};
  const ExecHandle exec = make_exec();
  const auto h = values<T>(s.tokens * s.width), w = values<T>(s.vocabulary * s.width);
  auto grad_h = h;
  std::vector<float> grad_weight(w.size());
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(s.tokens), 5);
  const std::vector<float> weights(static_cast<std::size_t>(s.tokens), 1.0f);
  std::vector<double> loss(2);
  std::vector<std::byte> workspace(static_cast<std::size_t>(
      head_loss_workspace_bytes(s.tokens, s.vocabulary, s.width, dtype_of<T>(), DType::f32, build_target())));
  HeadLossGrad<T, float> kernel(*exec, s, WeightGradient::add);
  const HeadLossInput<T> input{{h.data(), s.tokens, s.width},
                               {w.data(), s.vocabulary, s.width},
                               {targets.data(), s.tokens},
                               {weights.data(), s.tokens}};
  const StepScalars scalars;
  for (auto _ : state)
    kernel.run(*exec, input, &scalars, {loss.data(), 2}, {grad_h.data(), s.tokens, s.width},
               {grad_weight.data(), s.vocabulary, s.width},
               {workspace.data(), static_cast<std::int64_t>(workspace.size())});
  report(state, 6.0 * static_cast<double>(s.tokens * s.vocabulary * s.width));
}

void linear_sizes(benchmark::internal::Benchmark* b) {
  b->Args({512, 768, 768})->Args({2048, 768, 768})->Args({1024, 2048, 768})->Args({1024, 768, 3072});
  b->Args({2048, 3072, 768});
}

void attention_sizes(benchmark::internal::Benchmark* b) {
  b->Args({2, 512, 12, 12, 64, -1})
      ->Args({1, 2048, 8, 2, 64, -1})
      ->Args({2, 512, 8, 2, 128, -1})
      ->Args({1, 1024, 4, 2, 256, -1});
  for (const int before : {-1, 15, 3}) b->Args({1, 8192, 4, 4, 64, before});
}

template <class T>
void add(const std::string& type) {
  const auto product = [&](const char* name, Product which) {
    benchmark::RegisterBenchmark((std::string(name) + "/" + type).c_str(), linear<T>, which)
        ->Apply(linear_sizes);
  };
  product("linear", Product::forward);
  product("linear_grad_input", Product::grad_input);
  product("linear_grad_input_add", Product::grad_input_add);
  product("linear_grad_weight", Product::grad_weight);
  product("linear_grad_weight_add", Product::grad_weight_add);
  benchmark::RegisterBenchmark(("attention/" + type).c_str(), attention<T>, false)->Apply(attention_sizes);
  benchmark::RegisterBenchmark(("attention_grad/" + type).c_str(), attention<T>, true)
      ->Apply(attention_sizes);
  benchmark::RegisterBenchmark(("attention_cached_token/" + type).c_str(), attention_cached_token<T>)
      ->Args({3000, 12, 4, 64})
      ->Args({16384, 32, 8, 128})
      ->Args({16384, 8, 8, 128});
  benchmark::RegisterBenchmark(("linear_token/" + type).c_str(), linear_token<T>)
      ->Args({2048, 768})
      ->Args({14336, 4096});
  benchmark::RegisterBenchmark(("head_loss_grad/" + type).c_str(), head_loss<T>)->Args({512, 50257, 768});
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
