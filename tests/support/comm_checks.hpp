#pragma once
// What collectives must give, by serial arithmetic: every rank can compute what every other contributes.

#include <algorithm>

#include "layout/comm_cost.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "tests/support/comm_group.hpp"

namespace ztrain::test {

/// Bit for bit; near where NCCL adds elements of In in an order of its choice.
template <class In, class T>
bool as_expected(const CommGroup& g, const std::vector<T>& got, const std::vector<T>& expected) {
  if (g.via != Via::nccl || sizeof(In) == 2) return same_bits(got, expected);
  // Terms are below 1e3 and few: another order changes less than `sum`, and then the result is rounded.
  const double sum = sizeof(In) == 8 ? 1e-10 : 1e-2;
  const double rounding = sizeof(T) == 2 ? 0x1p-7 : sizeof(T) == 4 ? 0x1p-22 : 0x1p-51;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double a = static_cast<acc_t<T>>(got[i]), b = static_cast<acc_t<T>>(expected[i]);
    if (!(std::abs(a - b) <= sum + rounding * std::abs(b))) return false;
  }
  return got.size() == expected.size();
}

/// full: as many elements as all slots; slot r begins at r * stride.
template <class In, class Out>
void check_reduce_scatter(CommGroup& g, std::int64_t count, bool accumulate, std::int64_t stride = 0) {
  const std::int64_t step = stride > 0 ? stride : count;
  const DeviceArray<In> full(*g.device, contribution<In>(g.rank, step * g.size));
  std::vector<Out> expected = contribution<Out>(77 + g.rank, count);
  const DeviceArray<Out> shard(*g.device, expected);
  const DeviceArray<std::byte> workspace(*g.device, reduce_scatter_workspace(g.sums, dtype_of<In>(), count),
                                         std::byte{0});
  for (std::int64_t i = 0; i < count; ++i) {
    Out& e = expected[static_cast<std::size_t>(i)];
    e = added<In>(group_sum<In>(g, g.rank * step + i), e, accumulate);
  }
  const std::int64_t before = g.comm.bytes_sent();
  run(g.comm.reduce_scatter(full.data(), dtype_of<In>(), shard.data(), dtype_of<Out>(), count, accumulate,
                            workspace.data(), stride));
  EXPECT_TRUE(as_expected<In>(g, shard.read(), expected))
      << ztrain::name_of(dtype_of<In>()) << " to " << ztrain::name_of(dtype_of<Out>()) << " count " << count
      << " stride " << stride << " accumulate " << accumulate;
  EXPECT_EQ(g.comm.bytes_sent() - before, reduce_scatter_sent(g.sums, dtype_of<In>(), count));
}

template <class In>
void check_reduce_scatters(CommGroup& g) {
  for (const std::int64_t count : {1, 7, 256, 5001})
    for (const bool accumulate : {false, true}) {
      check_reduce_scatter<In, float>(g, count, accumulate);
      check_reduce_scatter<In, bf16>(g, count, accumulate);
      check_reduce_scatter<In, double>(g, count, accumulate);
    }
}

template <class T>
void check_all_reduce(CommGroup& g, std::int64_t count, bool in_place) {
  const auto mine = contribution<T>(g.rank, count);
  auto expected = mine;
  for (std::int64_t i = 0; i < count && g.size > 1; ++i)
    expected[static_cast<std::size_t>(i)] = static_cast<T>(group_sum<T>(g, i));
  DeviceArray<T> from(*g.device, mine);
  const DeviceArray<T> elsewhere(*g.device, contribution<T>(50, count));
  T* const to = in_place ? from.data() : elsewhere.data();
  // Not a byte more than the formula's workspace is touched.
  const auto bytes = static_cast<std::size_t>(all_reduce_workspace(g.sums, dtype_of<T>(), count));
  const DeviceArray<std::byte> workspace(*g.device, static_cast<std::int64_t>(bytes) + 64, std::byte{0x5A});
  const std::int64_t before = g.comm.bytes_sent();
  const auto reduce = g.comm.all_reduce(from.data(), to, dtype_of<T>(), count, workspace.data());
  run(reduce);
  EXPECT_TRUE(as_expected<T>(g, (in_place ? from : elsewhere).read(), expected))
      << ztrain::name_of(dtype_of<T>()) << " count " << count << " in place " << in_place;
  if (!in_place) {
    EXPECT_TRUE(same_bits(from.read(), mine));
  }
  const auto touched = workspace.read();
  for (std::size_t i = bytes; i < touched.size(); ++i) EXPECT_EQ(touched[i], std::byte{0x5A});
  EXPECT_EQ(g.comm.bytes_sent() - before, all_reduce_sent(g.sums, g.rank, dtype_of<T>(), count));
  from.write(mine);  // a prepared collective keeps its addresses
  run(reduce);
  EXPECT_TRUE(as_expected<T>(g, (in_place ? from : elsewhere).read(), expected))
      << "second start, count " << count;
}

inline void check_all_gather(CommGroup& g) {
  for (const std::int64_t count : {0, 1, 3, 1000}) {
    const auto mine = contribution<float>(g.rank, count);
    const DeviceArray<float> shard(*g.device, mine), full(*g.device, count * g.size, -1.0f);
    std::vector<float> expected;
    for (int r = 0; r < g.size; ++r) {
      const auto theirs = contribution<float>(r, count);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    const std::int64_t bytes = count * 4, before = g.comm.bytes_sent();
    run(g.comm.all_gather(shard.data(), full.data(), bytes));
    EXPECT_TRUE(same_bits(full.read(), expected));
    EXPECT_EQ(g.comm.bytes_sent() - before, all_gather_sent(g.size, bytes));

    std::vector<float> own(expected.size(), -1.0f);
    std::copy(mine.begin(), mine.end(), own.begin() + g.rank * count);
    const DeviceArray<float> in_place(*g.device, own);
    run(g.comm.all_gather(in_place.data() + g.rank * count, in_place.data(), bytes));
    EXPECT_TRUE(same_bits(in_place.read(), expected));
  }
}

inline void check_broadcast(CommGroup& g) {
  for (int root = 0; root < g.size; ++root) {
    const DeviceArray<double> data(*g.device, contribution<double>(g.rank, 129));
    const std::int64_t bytes = 129 * 8, before = g.comm.bytes_sent();
    run(g.comm.broadcast(data.data(), bytes, root));
    EXPECT_TRUE(same_bits(data.read(), contribution<double>(root, 129)));
    EXPECT_EQ(g.comm.bytes_sent() - before, broadcast_sent(g.size, g.rank, root, bytes));
  }
}

inline void check_all_to_all(CommGroup& g) {
  const std::int64_t count = 37, bytes = count * 4;
  const DeviceArray<float> in(*g.device, contribution<float>(g.rank, count * g.size)),
      out(*g.device, count * g.size, -1.0f);
  const std::int64_t before = g.comm.bytes_sent();
  run(g.comm.all_to_all(in.data(), out.data(), bytes));
  const auto got = out.read();
  for (int s = 0; s < g.size; ++s)
    for (std::int64_t i = 0; i < count; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(s * count + i)], element<float>(s, g.rank * count + i));
  EXPECT_EQ(g.comm.bytes_sent() - before, all_to_all_sent(g.size, bytes));
}

/// Sizes of 0, of whole slots and between them; they change from start to start, and as many rows travel.
inline void check_all_to_all_rows(CommGroup& g) {
  constexpr std::int64_t rows = 5, width = 37, slot = rows * width;
  const auto size = [](int from, int to, int start) { return (3 * from + to + start) % (rows + 1); };
  const DeviceArray<float> in(*g.device, contribution<float>(g.rank, slot * g.size)),
      out(*g.device, slot * g.size, -1.0f);
  DeviceArray<std::int32_t> sizes(*g.device, 2 * g.size, 0);
  const auto exchange = g.comm.all_to_all_rows(in.data(), out.data(), rows, width * 4, sizes.data());
  for (int start = 0; start <= rows; ++start) {
    std::vector<std::int32_t> now(static_cast<std::size_t>(2 * g.size));
    std::int64_t sent = 0;
    for (int r = 0; r < g.size; ++r) {
      now[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(size(g.rank, r, start));
      now[static_cast<std::size_t>(g.size + r)] = static_cast<std::int32_t>(size(r, g.rank, start));
      if (r != g.rank) sent += size(g.rank, r, start) * width * 4;
    }
    sizes.write(now);
    const std::int64_t before = g.comm.bytes_sent();
    run(exchange);
    const auto got = out.read();
    for (int s = 0; s < g.size; ++s)
      for (std::int64_t i = 0; i < size(s, g.rank, start) * width; ++i)
        EXPECT_EQ(got[static_cast<std::size_t>(s * slot + i)], element<float>(s, g.rank * slot + i));
    const std::int64_t whole = all_to_all_sent(g.size, slot * 4);
    EXPECT_EQ(g.comm.bytes_sent() - before, g.via < Via::nccl ? sent : whole);
  }
}

inline void check_shifts(CommGroup& g) {
  const std::int64_t count = 37, bytes = count * 4;
  for (int by = 1; by < g.size; ++by) {
    const DeviceArray<float> in(*g.device, contribution<float>(g.rank, count)), out(*g.device, count, -1.0f);
    const std::int64_t before = g.comm.bytes_sent();
    run(g.comm.shift(in.data(), out.data(), bytes, by));
    EXPECT_TRUE(same_bits(out.read(), contribution<float>((g.rank + g.size - by) % g.size, count)));
    EXPECT_EQ(g.comm.bytes_sent() - before, shift_sent(g.size, bytes));
  }
}

}  // namespace ztrain::test
