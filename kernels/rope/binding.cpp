#include "engine/dispatch.hpp"
#include "kernels/rope/record.hpp"
#include "kernels/rope/rope.hpp"

namespace ztrain::engine {
namespace {

Bound bind_rope_table(const Binding& b) {
  using Op = RopeTable;
  const auto record = b.record<Op>();
  kernels::RopeScaling scaling;
  if (record.scaling == "llama3") {
    scaling.kind = kernels::RopeScaling::Kind::llama3;
    scaling.factor = record.factor;
    scaling.low_freq_factor = record.low_freq_factor;
    scaling.high_freq_factor = record.high_freq_factor;
    scaling.original_max_position = static_cast<double>(record.original_max_position);
  }
  const auto make = [&]<class A>() {
    return launch(b, kernels::rope_table<A>, in_vector<std::int32_t>(b, Op::positions), record.theta, scaling,
                  out_matrix<A>(b, Op::table));
  };
  return b.out(Op::table).dtype == DType::f64 ? make.operator()<double>() : make.operator()<float>();
}

Bound bind_rope(const Binding& b) {
  const auto record = b.record<Rope>();
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::rope_apply<T>, in_matrix<T>(b, Rope::x), in_matrix<acc_t<T>>(b, Rope::table),
                  record.inverse, out_matrix<T>(b, Rope::y), record.heads);
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
