// Rows of tokens go to the ranks that have their experts by one exchange, and come back by another; on the
// way back from the loss their gradients do the same:
//
//   route_rows    offsets of all members are gathered     make_routes
//   to_experts    rows_to_slots     all_to_all_rows       slots_to_experts    backward as from_experts
//   from_experts  experts_to_slots  all_to_all_rows back  slots_to_rows       backward as to_experts

#include <fmt/format.h>

#include "kernels/communication/record.hpp"
#include "kernels/dispatch/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

AxisSet group_of(const Attributes& a) {
  return AxisSet::from_bits(static_cast<std::uint32_t>(a.integer("axes")));
}

TensorId add_temporary(Program& p, const model::Node& n, const char* what, const Action& action, DType dtype,
                       Shape shape) {
  return p.add({.name = fmt::format("{}.{}.{}.{}", n.name, what, name_of(action.kind), action.micro),
                .dtype = dtype,
                .shape = std::move(shape)});
}

void route_rows(Program& p, const Operands& o, const model::Node& n) {
  const AxisSet axes = group_of(n.attributes);
  const TensorId offsets = o.inputs[RouteRows::offsets];
  const Coordinate at(p.mesh, p.rank);
  const TensorId gathered =
      add_temporary(p, n, "gathered", o.action, DType::i32, {p.mesh.size(axes), p.tensor(offsets).shape[0]});
  emit_all_gather(p, n.name, offsets, gathered, axes, o.action);
  move_to_exchange(p);
  add_op(p, MakeRoutes{at.index_in(axes), record_of<RouteRows>(n.attributes).slot}, n.name, o.action,
         {gathered}, o.outputs);
}

/// Fills slots with x, exchanges the slots and empties them into y.
template <class Fill, class Empty, bool back>
void exchange(Program& p, const model::Node& n, TensorId x, TensorId routes, TensorId y,
              const Action& action) {
  const AxisSet axes = group_of(n.attributes);
  const MoveRows move{p.mesh.size(axes)};
  const auto slots = [&](const char* what) {
    const Tensor& like = p.tensor(back ? x : y);
    return add_temporary(p, n, what, action, like.dtype, like.shape);
  };
  const TensorId leaving = slots(back ? "returning" : "leaving"),
                 arrived = slots(back ? "returned" : "arrived");
  add_op(p, Fill{move}, n.name, action, {x, routes}, {leaving});
  emit_all_to_all_rows(p, n.name, {leaving, routes}, arrived, axes, back, action);
  add_op(p, Empty{move}, n.name, action, {arrived, routes}, {y});
}

/// Sends x, rows of this rank's tokens, and receives y, rows of this rank's experts.
constexpr auto& go = exchange<RowsToSlots, SlotsToExperts, false>;
/// Sends x, rows of this rank's experts, back and receives y, rows of this rank's tokens.
constexpr auto& come_back = exchange<ExpertsToSlots, SlotsToRows, true>;

void to_experts(Program& p, const Operands& o, const model::Node& n) {
  go(p, n, o.inputs[ToExperts::rows], o.inputs[ToExperts::routes], o.outputs[ToExperts::y], o.action);
}
void to_experts_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[ToExperts::rows], [&](TensorId drows) {
    come_back(t.program(), n, t.gradient(n.outputs[ToExperts::y]), t.tensor(n.inputs[ToExperts::routes]),
              drows, t.action());
  });
}

void from_experts(Program& p, const Operands& o, const model::Node& n) {
  come_back(p, n, o.inputs[FromExperts::rows], o.inputs[FromExperts::routes], o.outputs[FromExperts::y],
            o.action);
}
void from_experts_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[FromExperts::rows], [&](TensorId drows) {
    go(t.program(), n, t.gradient(n.outputs[FromExperts::y]), t.tensor(n.inputs[FromExperts::routes]), drows,
       t.action());
  });
}

bool in_group(const Attributes& a, AxisSet axes) {
  return axes.without(group_of(a)).empty();
}
bool beside_group(const Attributes& a, AxisSet axes) {
  return axes.without(group_of(a)) == axes;
}

// Over the axes of the group ranks exchange rows. Over other axes each rank has rows of its own, and belongs
// to another group.
constexpr Way route_rows_ways[] = {
    {{by_rows}, {by_rows, by_rows, partial}, {.of = beside_group}},
    {{by_rows}, {routed, routed, partial}, {.of = in_group}},
};
constexpr Way to_experts_ways[] = {
    {{by_rows, by_rows}, {by_rows}, {.of = beside_group}},
    {{by_rows, routed}, {routed}, {.of = in_group}},
};
constexpr Way from_experts_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}, {.of = beside_group}},
    {{by_rows, routed, routed}, {by_rows}, {.of = in_group}},
};

constexpr Way make_routes_ways[] = {
    {{by_rows}, {by_rows, by_rows, partial}},
    {{replicated}, {routed, routed, partial}},
};
constexpr Way rows_to_slots_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_rows, routed}, {to_members}},
};
constexpr Way slots_to_rows_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{to_members, routed}, {by_rows}},
};
constexpr Way slots_to_experts_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{from_members, routed}, {routed}},
};
constexpr Way experts_to_slots_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{routed, routed}, {from_members}},
};

}  // namespace

std::span<const OpType> dispatch_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RouteRows>(),
       .ways = route_rows_ways,
       .forward = route_rows,
       .kept = true,
       .own_size_from = 0},
      {.record = record<ToExperts>(),
       .adjoint = to_experts_adjoint,
       .ways = to_experts_ways,
       .replicated_only = true,
       .forward = to_experts,
       .own_size_from = 0},
      {.record = record<FromExperts>(),
       .adjoint = from_experts_adjoint,
       .ways = from_experts_ways,
       .replicated_only = true,
       .forward = from_experts},
      {.record = record<MakeRoutes>(), .ways = make_routes_ways},
      {.record = record<RowsToSlots>(), .ways = rows_to_slots_ways},
      {.record = record<SlotsToRows>(), .ways = slots_to_rows_ways},
      {.record = record<SlotsToExperts>(), .ways = slots_to_experts_ways},
      {.record = record<ExpertsToSlots>(), .ways = experts_to_slots_ways},
      {.record = record<CountOverflows>()},
  };
  return rows;
}

}  // namespace ztrain::program
