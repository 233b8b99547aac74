#include "engine/dispatch.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/dropout/dropout.hpp"
#include "kernels/dropout/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_dropout(const Binding& b) {
  const auto record = b.record<Dropout>();
  const kernels::DropoutMask mask{record.rate, static_cast<std::uint64_t>(record.key), record.first_token,
                                  record.first_column, record.columns};
  return with_type(b.out(0).dtype, [&]<class T>() -> Bound {
    const auto x = in_matrix<T>(b, Dropout::x);
    const auto* scalars = b.input<StepScalars>(Dropout::scalars);
    const auto y = out_matrix<T>(b, Dropout::y);
    if (record.gap == 0) return launch(b, kernels::dropout<T>, x, mask, scalars, y);
    kernels::DropoutMask later = mask;
    later.first_token += record.gap_at + record.gap;
    return {[&exec = b.exec, x, mask, later, scalars, y, before = record.gap_at] {
      const std::int64_t behind = x.rows - before;
      kernels::dropout<T>(exec, rows_of(x, 0, before), mask, scalars, rows_of(y, 0, before));
      kernels::dropout<T>(exec, rows_of(x, before, behind), later, scalars, rows_of(y, before, behind));
    }};
  });
}

}  // namespace

std::span<const KernelRow> dropout_kernels() {
  static constexpr KernelRow rows[] = {
      {Dropout::op, bind_dropout},
  };
  return rows;
}

}  // namespace ztrain::engine
