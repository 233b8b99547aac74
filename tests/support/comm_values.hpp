#pragma once
// Numbers whose sums over ranks show the order in which they were added, and these sums.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/dtype.hpp"
#include "layout/sum_group.hpp"

namespace ztrain::test {

/// Magnitudes over seven decades, so that another order of the sum gives other bits. Not inlined: its product
/// must not be fused with the caller's sum.
[[gnu::noinline]] inline double comm_value(int rank, std::int64_t i) {
  const double angle = 1.0 + 0.37 * static_cast<double>(i) + 2.1 * rank;
  return std::sin(angle) * std::pow(10.0, static_cast<double>((i * 7 + rank * 3) % 8) - 4);
}

template <class T>
T element(int rank, std::int64_t i) {
  return static_cast<T>(static_cast<acc_t<T>>(comm_value(rank, i)));
}

template <class T>
std::vector<T> contribution(int rank, std::int64_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = element<T>(rank, i);
  return data;
}

/// The sum over ranks of element i in the accumulator type: from rank 0 up, or by node from node 0 up.
template <class In>
acc_t<In> serial_sum(SumGroup group, std::int64_t i) {
  const int together = group.by_node(dtype_of<In>()) ? group.on_node : group.ranks;
  acc_t<In> sum = 0;
  for (int first = 0; first < group.ranks; first += together) {
    acc_t<In> partial = static_cast<acc_t<In>>(element<In>(first, i));
    for (int r = first + 1; r < first + together; ++r) partial += static_cast<acc_t<In>>(element<In>(r, i));
    sum = first == 0 ? partial : sum + partial;
  }
  return sum;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// `sum` of elements In, added to `old` where it accumulates, as a reduction to Out leaves it.
template <class In, class Out>
Out added(acc_t<In> sum, Out old, bool accumulate) {
  using Wide = std::common_type_t<acc_t<In>, acc_t<Out>>;
  const Wide all = accumulate ? static_cast<Wide>(static_cast<acc_t<Out>>(old)) + static_cast<Wide>(sum)
                              : static_cast<Wide>(sum);
  return static_cast<Out>(static_cast<acc_t<Out>>(all));
}

/// What a reduction over a group makes of element i and of `old`.
template <class In, class Out>
Out reduced(SumGroup group, std::int64_t i, Out old, bool accumulate) {
  return added<In>(serial_sum<In>(group, i), old, accumulate);
}

}  // namespace ztrain::test
