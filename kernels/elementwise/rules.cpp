#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"

#include "kernels/elementwise/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void add_adjoint(Tape& t, const model::Node& n) {
  for (const auto input : n.inputs) t.pass(input, t.gradient(n.outputs[Add::sum]));
}

void scale_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[Scale::x], [&](TensorId dx) {
    t.emit(record_of<Scale>(n.attributes), n.name, {t.gradient(n.outputs[Scale::y])}, {dx});
  });
}

constexpr Way add_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{routed, routed}, {routed}},
    {{by_columns, by_columns}, {by_columns}},
    {{partial, partial}, {partial}},
};

/// An op that is linear in its one operand has these ways.
constexpr Way linear_in_x[] = {
    {{by_rows}, {by_rows}},
    {{by_columns}, {by_columns}},
    {{partial}, {partial}},
    {{routed}, {routed}},
};

/// An op that takes each element alone, and no part of a sum, has the first two of these.
constexpr std::span element_by_element = std::span(linear_in_x).first<2>();

}  // namespace

std::span<const OpType> elementwise_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Add>(), .adjoint = add_adjoint, .overlay = 2, .ways = add_ways},
      {.record = record<Scale>(), .adjoint = scale_adjoint, .overlay = 1, .ways = linear_in_x},
      {.record = record<SoftCap>(), .overlay = 1, .ways = element_by_element},
      {.record = record<Copy>(), .adjoint = pass_gradient, .ways = linear_in_x},
      {.record = record<OwnRows>()},
      // The models cast constants alone, which every rank uses in the same way.
      {.record = record<Cast>(), .ways = linear_in_x, .invariant_only = true},
      {.record = record<ZeroGaps>()},
      {.record = record<Release>()},
  };
  return rows;
}

}  // namespace ztrain::program
