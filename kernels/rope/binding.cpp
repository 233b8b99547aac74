#include "base/error.hpp"
#include "engine/dispatch.hpp"
#include "kernels/rope/record.hpp"
#include "kernels/rope/rope.hpp"

namespace ztrain::engine {
namespace {

kernels::RopeScaling scaling_of(const RopeTable& r) {
  return {r.theta,           r.scaling,          r.factor,
          r.low_freq_factor, r.high_freq_factor, r.original_max_position,
          r.max_position,    r.length,           r.attention_factor,
          r.beta_fast,       r.beta_slow,        r.mscale,
          r.mscale_all_dim,  r.truncate,         r.short_factors,
          r.long_factors};
}

Bound bind_rope_table(const Binding& b) {
  using Op = RopeTable;
  const auto record = b.record<Op>();
  return with_sum_type(b.out(Op::table).dtype, [&]<class A>() {
    const auto table = out_matrix<A>(b, Op::table);
    REQUIRE(record.width == 0 || record.width == table.cols, "rope_table: the table has {} columns, not {}",
            table.cols, record.width);
    return launch(b, kernels::rope_table<A>, in_vector<std::int32_t>(b, Op::positions),
                  kernels::rope_frequencies(scaling_of(record), table.cols), table);
  });
}

Bound bind_rope(const Binding& b) {
  const auto record = b.record<Rope>();
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(
        b, kernels::rope_apply<T>, in_matrix<T>(b, Rope::x), in_matrix<acc_t<T>>(b, Rope::table),
        kernels::RopeForm{record.inverse, record.heads, record.head_dim, record.from, record.interleaved},
        out_matrix<T>(b, Rope::y));
  });
}

}  // namespace

std::span<const KernelRow> rope_kernels() {
  static constexpr KernelRow rows[] = {
      {RopeTable::op, bind_rope_table},
      {Rope::op, bind_rope},
  };
  return rows;
}

}  // namespace ztrain::engine
