#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/heads/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// Moves the gradients of the outputs back. The gradient of a head that all heads read is the sum of theirs.
void head_parts_adjoint(Tape& t, const model::Node& n) {
  auto parts = record_of<HeadParts>(n.attributes);
  std::swap(parts.shared_input, parts.shared_output);
  for (HeadMove& move : parts.moves) move = {move.output, move.to, move.input, move.from, move.count};
  std::vector<TensorId> gradients;
  for (const model::ValueId out : n.outputs) gradients.push_back(t.gradient(out));
  t.contribute(n.inputs,
               [&](const std::vector<TensorId>& d) { t.emit(parts, n.name, std::move(gradients), d); });
}

/// Sets how many heads the rank has.
void fit_head_parts(model::Node& node, const PartOfNode& part) {
  const PartOfNode::Operand& first = part.inputs[0];
  edit<HeadParts>(node.attributes, [&](HeadParts& p) {
    const std::int64_t heads = p.heads * first.shape[1];
    REQUIRE(heads % first.whole[1] == 0, "{}: {} heads do not divide into whole ones over {}", node.name,
            p.heads, to_string(part.axes));
    p.heads = heads / first.whole[1];
  });
}

bool has_heads(const Attributes& a, AxisSet) {
  const auto parts = record_of<HeadParts>(a);
  return parts.heads > 0 && !parts.shared_input && !parts.shared_output;
}
bool shares_input(const Attributes& a, AxisSet) {
  return record_of<HeadParts>(a).shared_input;
}
bool shares_output(const Attributes& a, AxisSet) {
  return record_of<HeadParts>(a).shared_output;
}

constexpr Way head_parts_ways[] = {
    {{by_rows, by_rows}, {by_rows, by_rows}},
    {{by_columns, by_columns}, {by_columns, by_columns}, {.of = has_heads}},
    {{by_columns, replicated}, {by_columns, by_columns}, {.of = shares_input}},
    {{by_columns, by_columns}, {by_columns, partial}, {.of = shares_output}},
    {{partial, partial}, {partial, partial}},
};

}  // namespace

std::span<const OpType> heads_ops() {
  static constexpr OpType rows[] = {
      {.record = record<HeadParts>(),
       .adjoint = head_parts_adjoint,
       .ways = head_parts_ways,
       .fit = fit_head_parts},
  };
  return rows;
}

}  // namespace ztrain::program
