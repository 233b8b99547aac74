// What AdamW on the host moves a second, and STREAM's triad beside it: ztrain_adam_bench MILLIONS THREADS
// PARAMETER MASTER GRADIENT MOMENTS, dtypes as decks name them. Each thread has a core and a part of the elements
// of its own, as ranks have. Bytes are those that a step must read and write, once each; of the triad a[i] = b[i] +
// s c[i] they are counted as STREAM does, 24 an element of fp64, and the faster of two ways of storing counts.
// Prints JSON with the medians.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "base/clock.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/optimizer/optimizer_step.hpp"
#include "memory/arena.hpp"

namespace {

using namespace ztrain;
using namespace ztrain::kernels;

constexpr int repeats = 7;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Seconds of work(thread) on all threads at once, by the last one; the first time does not count.
double seconds_of(int threads, const std::function<void(int)>& work) {
  std::vector<double> seconds(repeats + 1);
  std::barrier together(threads);
  const auto run = [&](int thread) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(static_cast<std::size_t>(thread), &core);
    sched_setaffinity(0, sizeof core, &core);  // where it may not be, it goes where it goes
    for (double& second : seconds) {
      together.arrive_and_wait();
      const double begin = now();
      work(thread);
      together.arrive_and_wait();
      if (thread == 0) second = now() - begin;
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  std::thread(run, 0).join();
  for (std::thread& other : others) other.join();
  return median({seconds.begin() + 1, seconds.end()});
}

/// Numbers around `scale`, of both signs or positive alone. Memory that nobody wrote would be one page of zeros.
void fill_with(std::byte* data, DType type, std::int64_t n, float scale, bool positive) {
  const auto with = [&](auto* to) {
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = static_cast<float>(i * 2654435761 % 2003 + 1) / 2003;
      to[i] = static_cast<std::remove_reference_t<decltype(*to)>>(scale * (positive || i % 2 == 0 ? x : -x));
    }
  };
  if (type == DType::f32) with(reinterpret_cast<float*>(data));
  else if (type == DType::bf16) with(reinterpret_cast<bf16*>(data));
  else if (type == DType::f16) with(reinterpret_cast<f16*>(data));
  else with(reinterpret_cast<double*>(data));
}

void triad(double* __restrict a, const double* __restrict b, const double* __restrict c, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) a[i] = b[i] + 3.0 * c[i];
}

/// The same past the caches, which need not read what is to be written; n is a multiple of 4.
void triad_past_caches(double* __restrict a, const double* __restrict b, const double* __restrict c,
                       std::int64_t n) {
#if defined(__AVX__)
  const __m256d s = _mm256_set1_pd(3.0);
  for (std::int64_t i = 0; i < n; i += 4)
    _mm256_stream_pd(a + i, _mm256_add_pd(_mm256_load_pd(b + i), _mm256_mul_pd(s, _mm256_load_pd(c + i))));
  _mm_sfence();
#else
  triad(a, b, c, n);
#endif
}

double triad_rate(std::int64_t elements, int threads) {
  const std::int64_t each = elements / threads / 512 * 512, bytes = each * threads * 8;
  memory::Arena arrays("triad", 3 * bytes);
  const auto array = [&](int which, int thread) {
    return reinterpret_cast<double*>(arrays.at(which * bytes + thread * each * 8));
  };
  fill_with(arrays.at(0), DType::f64, 3 * bytes / 8, 1.0f, false);
  double best = 0;
  for (const auto& way : {triad, triad_past_caches}) {
    const double seconds =
        seconds_of(threads, [&](int t) { way(array(0, t), array(1, t), array(2, t), each); });
    best = std::max(best, static_cast<double>(3 * bytes) / seconds);
  }
  return best;
}

/// A rank's arrays and its step on them.
struct Part {
  memory::Arena arrays;
  ExecHandle exec = make_exec();
  std::unique_ptr<OptimizerStep> step;

  Part(const OptimizerTypes& t, std::int64_t elements)
      : arrays("arrays", elements * 32) {
    std::int64_t used = 0;
    const auto take = [&](DType type, float scale, bool positive = false) {
      std::byte* const begin = arrays.at(used);
      fill_with(begin, type, elements, scale, positive);
      used = round_up(used + elements * size_of(type), 4096);
      return begin;
    };
    const bool master = t.master != t.parameter;
    OptimizerArrays a;
    a.parameter = take(t.parameter, 0.1f);
    a.master = master ? take(t.master, 0.1f) : nullptr;
    a.gradient = take(t.gradient, 1e-3f);
    a.states = {take(t.moments, 1e-3f), take(t.moments, 1e-6f, true)};
    step = make_optimizer_step("adamw", optim::Settings{}, t, a, {OptimizerPiece{.count = elements, .weight_decay = 0.1}},
                               Rounding{});
  }
};

void run(char** argv) {
  const std::int64_t elements = std::atoll(argv[1]) * 1000000;
  const int threads = std::atoi(argv[2]);
  const OptimizerTypes types{dtype_from(argv[3]), dtype_from(argv[4]), dtype_from(argv[5]), dtype_from(argv[6])};
  const double stream = triad_rate(elements / 2, threads);
  const std::int64_t each = elements / threads / 256 * 256;
  std::vector<std::unique_ptr<Part>> parts;
  for (int t = 0; t < threads; ++t) parts.push_back(std::make_unique<Part>(types, each));
  StepScalars scalars;
  scalars.learning_rate = 1e-3;
  scalars.bias_correction1 = 0.1;
  scalars.bias_correction2 = 0.001;
  scalars.gradient_multiplier = 1;
  const double seconds = seconds_of(threads, [&](int t) {
    Part& part = *parts[static_cast<std::size_t>(t)];
    part.step->run(*part.exec, &scalars);
  });
  const bool master = types.master != types.parameter;
  const std::int64_t bytes = size_of(types.parameter) * (master ? 1 : 2) +
                             (master ? 2 * size_of(types.master) : 0) + size_of(types.gradient) +
                             4 * size_of(types.moments);
  const double rate = static_cast<double>(bytes * each * threads) / seconds;
  fmt::print("{{\"seconds\": {:.6f}, \"bytes\": {}, \"rate\": {:.0f}, \"triad\": {:.0f}}}\n", seconds, bytes, rate,
             stream);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "usage: {} MILLIONS THREADS PARAMETER MASTER GRADIENT MOMENTS\n", argv[0]);
    return 2;
  }
  initialize_backend();
  int status = 0;
  try {
    run(argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    status = 1;
  }
  finalize_backend();
  return status;
}
