#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/attention_lanes.hpp"
#include "kernels/attention/attention_plain.hpp"

namespace ztrain::kernels {
namespace {

/// Every parts-th of the keys that row [token, head] sees, from number `part` on. None without a row of its
/// own in the cache.
template <class T, int max_dim, bool caps>
KOKKOS_INLINE_FUNCTION void attend(const Warp& warp, const CachedArguments<T>& a, std::int64_t row, int part,
                                   int parts, Stream<acc_t<T>, max_dim>& stream) {
  using A = acc_t<T>;
  const AttentionShape& s = a.shape;
  const int dim = static_cast<int>(s.head_dim);
  const std::int64_t kv = row % s.heads / (s.heads / s.kv_heads), own = a.row_of(row / s.heads);
  const std::int64_t end = own >= 0 && own < a.capacity ? own + 1 : 0;
  Share<A, max_dim> q, key, value;
  stream.out.zero();
  a.begin_softmax(row % s.heads, part == 0 && end > 0, stream.maximum, stream.sum);
  warp.each([&](const int lane) { q.load(a.q + row * s.head_dim, lane, dim); });
  for (std::int64_t j = a.first_row(own) + part; j < end; j += parts) {
    if (!s.layout.has(own, j)) continue;
    const std::int64_t at = (kv * a.capacity + j) * s.head_dim;
    warp.each([&](const int lane) {
      key.load(a.k + at, lane, dim);
      value.load(a.v + at, lane, dim);
    });
    stream.add(a.template score<caps>(warp.template sum<A>([&](int) { return q.dot(key); })), value);
  }
}

/// By one thread of a CPU.
template <class T, int max_dim, bool caps>
struct WholeCache {
  CachedArguments<T> a;
  void operator()(std::int64_t row) const {
    Stream<acc_t<T>, max_dim> stream;
    const OneThread thread;
    attend<T, max_dim, caps>(thread, a, row, 0, 1, stream);
    // Without a row there was nothing to sum: 0 / 0.
    for (std::int64_t d = 0; d < a.shape.head_dim; ++d)
      a.o[row * a.shape.head_dim + d] = static_cast<T>(stream.out.x[d] / stream.sum);
  }
};

/// By a team of a GPU. Each warp leaves its maximum, its sum and its output in the team's shared memory.
template <class T, int max_dim, bool caps>
struct SharedCache {
  CachedArguments<T> a;
  static constexpr int warps = 8;
  static constexpr std::size_t bytes = sizeof(acc_t<T>) * warps * (max_dim + 2);

  KOKKOS_INLINE_FUNCTION void operator()(const TeamLanes::Team& team) const {
    using A = acc_t<T>;
    const auto row = static_cast<std::int64_t>(team.league_rank());
    const int dim = static_cast<int>(a.shape.head_dim), part = team.team_rank();
    A* const outs = static_cast<A*>(team.team_scratch(0).get_shmem(static_cast<int>(bytes)));
    A* const maxima = outs + warps * max_dim;
    A* const sums = maxima + warps;
    const WarpLanes warp(team);
    Stream<A, max_dim> stream;
    attend<T, max_dim, caps>(warp, a, row, part, warps, stream);
    warp.each([&](const int lane) { stream.out.store(outs + part * max_dim, lane, dim); });
    warp.once([&] {
      maxima[part] = stream.maximum;
      sums[part] = stream.sum;
    });
    team.team_barrier();
    A largest = maxima[0], sum = 0;
    for (int w = 1; w < warps; ++w) largest = maxima[w] > largest ? maxima[w] : largest;
    for (int w = 0; w < warps; ++w) sum += std::exp(maxima[w] - largest) * sums[w];
    T* const to = a.o + row * a.shape.head_dim;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, dim), [&](const int d) {
      A total = 0;
      for (int w = 0; w < warps; ++w) total += std::exp(maxima[w] - largest) * outs[w * max_dim + d];
      to[d] = static_cast<T>(total / sum);
    });
  }
};

template <class T, int max_dim, bool caps>
void launch(Exec& exec, const CachedArguments<T>& a) {
  using Shared = SharedCache<T, max_dim, caps>;
  static_assert(carried<Shared>);
  const std::int64_t rows = a.shape.tokens * a.shape.heads;
  if constexpr (on_gpu) {
    for_teams<1, Shared::warps * WarpLanes::width>(exec, rows, Shared::warps, WarpLanes::width, Shared::bytes,
                                                   Shared{a});
  } else {
    for_rows(exec, rows, WholeCache<T, max_dim, caps>{a});
  }
}

}  // namespace

template <class T>
void attention_cached_plain(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o) {
  check_cached<T>(input, o);
  by_width_and_cap(input.shape,
                   [&]<int max_dim, bool caps>() { launch<T, max_dim, caps>(exec, arguments_of(input, o)); });
}

ZTRAIN_INSTANCES(attention_cached_plain)

}  // namespace ztrain::kernels
