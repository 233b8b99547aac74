#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/step/exact_window.hpp"
#include "kernels/step/step_metrics.hpp"

namespace ztrain::kernels {
namespace {

static_assert(sum_squares_quantum == quantum);

/// One quantum. Not inlined, so that there is one copy of it and one order of its sums.
template <class G>
[[gnu::noinline]] KOKKOS_FUNCTION double quantum_squares(const G* __restrict x) {
  double sum = 0;
  for (std::int64_t i = 0; i < quantum; ++i) {
    const double value = static_cast<double>(load(x[i]));
    sum += value * value;
  }
  return sum;
}

/// The array's last quantum, as if padded with zeros.
template <class G>
KOKKOS_INLINE_FUNCTION double short_quantum_squares(const G* __restrict x, std::int64_t n) {
  G padded[quantum];
  for (std::int64_t i = 0; i < quantum; ++i) padded[i] = i < n ? x[i] : static_cast<G>(0.0f);
  return quantum_squares<G>(padded);
}

template <class G>
struct QuantumSquares {
  const G* data;
  double* sums;
  void operator()(std::int64_t begin, std::int64_t n) const {
    sums[begin / quantum] =
        n == quantum ? quantum_squares<G>(data + begin) : short_quantum_squares<G>(data + begin, n);
  }
};

/// On a GPU a warp takes a quantum: each lane its elements, in packs that lie side by side, then the lanes in
/// the order of their exchange. Both are the same for each quantum; what is beyond the array counts as zeros.
template <class G>
struct WarpSquares {
  static constexpr int lanes = 32, warps = 8;
  using Team = TeamLanes::Team;

  const G* data;
  std::int64_t count;
  double* sums;

  KOKKOS_INLINE_FUNCTION void operator()(const Team& team) const {
    const std::int64_t index = std::int64_t{team.league_rank()} * warps + team.team_rank(),
                       begin = index * quantum;
    if (begin >= count) return;
    double total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, lanes),
        [&](const int lane, double& sum) { sum += lane_squares(begin, lane); }, total);
    Kokkos::single(Kokkos::PerThread(team), [&] { sums[index] = total; });
  }

  KOKKOS_INLINE_FUNCTION double lane_squares(std::int64_t begin, int lane) const {
    constexpr std::int64_t size = pack_of<G>;
    double sum = 0;
    for (std::int64_t at = begin + lane * size; at < begin + quantum; at += lanes * size) {
      Pack<G, size> values;
      values.load(data + at, count - at < size ? count - at : size);
      for (std::int64_t i = 0; i < size; ++i) {
        const double value = static_cast<double>(load(values.at[i]));
        sum += value * value;
      }
    }
    return sum;
  }
};

template <class G>
void square_quanta(Exec& exec, const G* data, std::int64_t count, double* sums) {
  using Warps = WarpSquares<G>;
  static_assert(carried<Warps>);
  if constexpr (on_gpu) {
    for_teams<1, Warps::warps * Warps::lanes>(exec, ceil_div(count, quantum * Warps::warps), Warps::warps,
                                              Warps::lanes, 0, Warps{data, count, sums});
  } else {
    for_blocks(exec, count, QuantumSquares<G>{data, sums});
  }
}

/// Adds to an ExactSum that other threads add to.
struct SpillTo {
  ExactSum* out;
  KOKKOS_INLINE_FUNCTION void operator()(int limb, std::int64_t value) const {
    // Of the type whose atomics are single instructions; its addition wraps around like the signed one.
    if (limb == ExactSum::limbs) {
      Kokkos::atomic_or(reinterpret_cast<std::uint64_t*>(&out->not_finite), std::uint64_t{1});
    } else {
      Kokkos::atomic_add(reinterpret_cast<std::uint64_t*>(&out->limb[limb]),
                         static_cast<std::uint64_t>(value));
    }
  }
};

/// out[0] += sums, by as many threads as have 64 terms each. Integers are added, so their order is free; out
/// is not carried after it.
void add_by_threads(Exec& exec, Vector<const double> sums, ExactSum* out) {
  const std::int64_t threads = ceil_div(sums.count, 64);
  for_rows(
      exec, threads, KOKKOS_LAMBDA(const std::int64_t thread) {
        const SpillTo spill{out};
        ExactWindow window;
        for (std::int64_t i = thread; i < sums.count; i += threads) window.add(sums.data[i], spill);
        window.flush(spill);
      });
}

/// On a CPU: out[0] = sums, plus the old out[0] when add is set; carried. A template, so that GPUs have none.
template <class Sum>
void add_in_order(Exec& exec, Vector<const double> sums, bool add, Sum* out) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        Sum total = add ? *out : Sum{};
        for (std::int64_t i = 0; i < sums.count; ++i) total.add(sums.data[i]);
        total.carry();
        *out = total;
      });
}

void carry(Exec& exec, ExactSum* out) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) { out->carry(); });
}

}  // namespace

template <class G>
void sum_squares(Exec& exec, Vector<const G> x, bool add, ExactSum* out, void* workspace) {
  auto* const sums = static_cast<double*>(workspace);
  constexpr std::int64_t pass = sum_squares_pass_quanta * quantum;
  if (on_gpu && !add) zero(exec, out, sizeof(ExactSum));
  for (std::int64_t first = 0; first == 0 || first < x.count; first += pass) {
    const std::int64_t length = x.count - first < pass ? x.count - first : pass;
    const Vector<const double> quanta{sums, ceil_div(length, quantum)};
    square_quanta<G>(exec, x.data + first, length, sums);
    if constexpr (on_gpu)
      add_by_threads(exec, quanta, out);
    else
      add_in_order(exec, quanta, add || first > 0, out);
  }
  if constexpr (on_gpu) carry(exec, out);
}

ZTRAIN_INSTANCES(sum_squares)

}  // namespace ztrain::kernels
