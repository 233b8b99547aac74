#include "base/error.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/blocks/attention_forward_blocks.hpp"
#include "kernels/attention/blocks/attention_half_cpu.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

using namespace attention_blocks;

/// Products in the type of the sums.
template <class T, int max_dim>
struct WideTiles {
  using A = acc_t<T>;
  using Arguments = AttentionForwardArguments<T>;

  struct Queries : QueryBlock<A> {
    alignas(64) A queries[max_dim * block];  ///< transposed, times scale and log2(e)
    alignas(64) A out[block * max_dim];
  };
  Queries query[most_blocks];
  alignas(64) A keys[block * max_dim];
  alignas(64) A values[block * max_dim];
  alignas(64) A scores[block * block];  ///< [key][query]
  Prefetch ahead;

  explicit WideTiles(const Arguments&) {}  // they begin as they are

  void load_queries(const Arguments& a, std::int64_t head, std::int64_t q0, int number) {
    const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
    Queries& q = query[number];
    q.set(a, q0);
    tile::load(a.q + a.shape.q_at(q0, head), a.shape.q_row(), q.count, hd, keys, max_dim, block, hd);
    tile::transpose(keys, max_dim, block, hd, a.scale * A(log2_e), q.queries, block);
    for (int i = 0; i < block; ++i) std::fill_n(q.out + i * max_dim, columns, A(0));
    if (a.resumes) load_sums(a, head, q, q.out, max_dim);
  }

  void load_keys(const Arguments& a, std::int64_t offset, int count) {
    const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
    const int rows = tile::padded(count, tile::row_quantum);
    tile::load(a.k + offset, a.shape.kv_row(), count, hd, keys, max_dim, rows, hd);
    tile::load(a.v + offset, a.shape.kv_row(), count, hd, values, max_dim, count, columns);
  }

  void score(const Arguments& a, const Seen& seen, const Queries& q) {
    const int hd = static_cast<int>(a.shape.head_dim);
    tile::product_within<A, false>(seen.keys, {keys, max_dim, 1, q.queries, block, scores, block},
                                   [&](int i, int n) {
                                     ahead.take(ahead_rows);
                                     return tile::Part{whole_packs(seen.queries_of(i, n)), {0, hd}};
                                   });
  }

  void add_values(const Arguments& a, const Seen& seen, Queries& q) {
    const int columns = tile::padded(static_cast<int>(a.shape.head_dim), tile::column_quantum);
    scale_rows(q.out, max_dim, q.count, columns, q.softmax.correction);
    tile::product_within<A, true>(q.count, {scores, 1, block, values, max_dim, q.out, max_dim},
                                  [&](int i, int n) {
                                    ahead.take(ahead_rows);
                                    return tile::Part{{0, columns}, seen.keys_of(i, n)};
                                  });
  }

  void store(const Arguments& a, std::int64_t head, int number) const {
    store_output(a, head, query[number], query[number].out, max_dim);
  }
};

template <class T>
void run(Exec& exec, const AttentionForwardArguments<T>& a) {
  if (attention_forward_half(exec, a)) return;
  by_width(a.shape.head_dim, [&]<int max_dim>() { forward<WideTiles<T, max_dim>>(exec, a); });
}

}  // namespace

template <class T>
void attention_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  check_attention<T>(input, o, lse);
  run<T>(exec, {arguments_of(input), o.data, lse.data});
}

double part_unit() {
  return ln_2;
}

template <class T>
void attention_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                    bool resumes) {
  check_part_sums<T>(input, sums);
  run<T>(exec, part_arguments(input, sums, resumes));
}

ZTRAIN_INSTANCES(attention_forward)
ZTRAIN_INSTANCES(attention_part)

}  // namespace ztrain::kernels
