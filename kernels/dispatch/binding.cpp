#include "engine/dispatch.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/dispatch/record.hpp"
#include "kernels/dispatch/routes.hpp"
#include "kernels/step/step_metrics.hpp"

namespace ztrain::engine {
namespace {

Bound bind_make_routes(const Binding& b) {
  using Op = MakeRoutes;
  const auto record = b.record<Op>();
  return launch(b, kernels::make_routes, in_matrix<std::int32_t>(b, Op::gathered), record.index, record.slot,
                out_vector<std::int32_t>(b, Op::routes), out_vector<std::int32_t>(b, Op::own_offsets),
                b.output<double>(Op::overflow));
}

Bound bind_count_overflows(const Binding& b) {
  std::vector<const double*> terms;
  for (std::size_t i = 0; i < b.op.inputs.size(); ++i)
    for (std::int64_t at = 0; at < elements(b.in(i).shape); ++at) terms.push_back(b.input<double>(i) + at);
  return {[&exec = b.exec, terms, sum = b.output<double>(CountOverflows::sum)] {
    kernels::sum_terms(exec, terms, sum);
  }};
}

/// Returns the launch of kernel_for(T()), the kernel of rows of T.
template <class Op, class KernelFor>
Bound move_rows(const Binding& b, KernelFor kernel_for) {
  const auto members = b.record<Op>().members;
  const auto routes = in_vector<std::int32_t>(b, Op::routes);
  const kernels::Routes by{routes.data, members, experts_of_routes(routes.count, members)};
  return with_type(b.in(Op::x).dtype, [&]<class T>() {
    return launch(b, kernel_for(T()), in_matrix<T>(b, Op::x), by, out_matrix<T>(b, Op::y));
  });
}

Bound bind_rows_to_slots(const Binding& b) {
  return move_rows<RowsToSlots>(b, []<class T>(T) { return kernels::rows_to_slots<T>; });
}
Bound bind_slots_to_rows(const Binding& b) {
  return move_rows<SlotsToRows>(b, []<class T>(T) { return kernels::slots_to_rows<T>; });
}
Bound bind_slots_to_experts(const Binding& b) {
  return move_rows<SlotsToExperts>(b, []<class T>(T) { return kernels::slots_to_experts<T>; });
}
Bound bind_experts_to_slots(const Binding& b) {
  return move_rows<ExpertsToSlots>(b, []<class T>(T) { return kernels::experts_to_slots<T>; });
}

}  // namespace

std::span<const KernelRow> dispatch_kernels() {
  static constexpr KernelRow rows[] = {
      {MakeRoutes::op, bind_make_routes},          {RowsToSlots::op, bind_rows_to_slots},
      {SlotsToRows::op, bind_slots_to_rows},       {SlotsToExperts::op, bind_slots_to_experts},
      {ExpertsToSlots::op, bind_experts_to_slots}, {CountOverflows::op, bind_count_overflows},
  };
  return rows;
}

}  // namespace ztrain::engine
