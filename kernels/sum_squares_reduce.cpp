#include "base/kernel_workspace.hpp"
#include "kernels/rows.hpp"
#include "kernels/sum_squares.hpp"

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

/// out[0] = sums, plus the old out[0] when add is set.
void add_exactly(Exec& exec, Vector<const double> sums, bool add, ExactSum* out) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        ExactSum total = add ? *out : ExactSum{};
        for (std::int64_t i = 0; i < sums.count; ++i) total.add(sums.data[i]);
        total.carry();
        *out = total;
      });
}

}  // namespace

template <class G>
void sum_squares(Exec& exec, Vector<const G> x, bool add, ExactSum* out, void* workspace) {
  auto* const sums = static_cast<double*>(workspace);
  constexpr std::int64_t pass = sum_squares_pass_quanta * quantum;
  for (std::int64_t first = 0; first == 0 || first < x.count; first += pass) {
    const std::int64_t length = x.count - first < pass ? x.count - first : pass;
    const G* const data = x.data + first;
    for_blocks(
        exec, length, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
          sums[begin / quantum] =
              n == quantum ? quantum_squares<G>(data + begin) : short_quantum_squares<G>(data + begin, n);
        });
    add_exactly(exec, {sums, ceil_div(length, quantum)}, add || first > 0, out);
  }
}

template void sum_squares<float>(Exec&, Vector<const float>, bool, ExactSum*, void*);
template void sum_squares<bf16>(Exec&, Vector<const bf16>, bool, ExactSum*, void*);
template void sum_squares<f16>(Exec&, Vector<const f16>, bool, ExactSum*, void*);
template void sum_squares<double>(Exec&, Vector<const double>, bool, ExactSum*, void*);

}  // namespace ztrain::kernels
