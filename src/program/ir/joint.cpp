#include "program/ir/joint.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/ir/order.hpp"

namespace ztrain::program {
namespace {

Channel channel_of(const Communication& comm) {
  if (comm.kind == CommKind::send) return {Channel::Kind::send, comm.axes, comm.peer};
  if (comm.kind == CommKind::recv) return {Channel::Kind::recv, comm.axes, comm.peer};
  return {Channel::Kind::collective, comm.axes, -1};
}

int part_of(const Repeat& repeat, OpId id) {
  if (repeat.times == 1) return 2;
  return id < repeat.begin ? 0 : repeat.contains(id) ? 1 : 2;
}

Signature signature_of(const Program& program, OpId id) {
  const Op& op = program.op(id);
  const Communication& comm = op.comm;
  Signature s{.kind = comm.kind};
  s.times = program.times(id);
  s.part = part_of(program.repeat, id);
  const auto take = [&](const std::vector<TensorId>& ids, int& type, std::int64_t& count) {
    if (ids.empty()) return;
    const Tensor& tensor = program.tensor(ids.front());
    type = static_cast<int>(tensor.dtype);
    count = elements(tensor.shape);
  };
  if (comm.kind == CommKind::broadcast || comm.kind == CommKind::shift) s.root = comm.peer;
  if (comm.kind == CommKind::broadcast) {
    // The root may only read what the others only write: one payload describes both.
    take(op.outputs.empty() ? op.inputs : op.outputs, s.output_type, s.output_elements);
    return s;
  }
  if (comm.kind == CommKind::send || comm.kind == CommKind::recv) {
    // As in the list: what is behind the body is numbered as in the whole step.
    s.micro = op.action.micro - (s.part == 2 ? (program.repeat.times - 1) * program.repeat.stride : 0);
    s.boundary = op.attributes.integer("boundary", 0);
    s.split_over = op.attributes.integer("split_over", 0);
    s.partial_over = op.attributes.integer("partial_over", 0);
  }
  if (comm.kind != CommKind::recv) take(op.inputs, s.input_type, s.input_elements);
  if (comm.kind != CommKind::send) take(op.outputs, s.output_type, s.output_elements);
  return s;
}

}  // namespace

std::string to_string(const Signature& s) {
  std::string text(name_of(s.kind));
  const auto add = [&](const char* word, int type, std::int64_t count) {
    if (type >= 0) text += fmt::format(" {} {} {}", word, count, name_of(static_cast<DType>(type)));
  };
  add("of", s.input_type, s.input_elements);
  add(s.input_type >= 0 ? "into" : "of", s.output_type, s.output_elements);
  if (s.micro >= 0) text += fmt::format(" of micro-batch {}", s.micro);
  if (s.boundary > 0) text += fmt::format(" into stage {}", s.boundary);
  const auto add_axes = [&](const char* words, std::int64_t bits) {
    if (bits != 0)
      text +=
          fmt::format(" {} over {}", words, to_string(AxisSet::from_bits(static_cast<std::uint32_t>(bits))));
  };
  add_axes("split", s.split_over);
  add_axes("in parts of a sum", s.partial_over);
  if (s.times > 1) text += fmt::format(", {} times", s.times);
  if (s.kind == CommKind::shift) text += fmt::format(" by {}", s.root);
  if (s.kind == CommKind::broadcast) text += fmt::format(" from member {}", s.root);
  return text;
}

int Trace::find(const Channel& channel) const {
  const auto it = std::find(channels.begin(), channels.end(), channel);
  return it == channels.end() ? -1 : static_cast<int>(it - channels.begin());
}

Trace trace_of(const Program& program) {
  Trace trace;
  std::vector<int> issue_of(program.ops.size(), -1);  // -1: no communication, or already waited for
  PerStream tail = no_ops;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.op(id);
    const auto wait = [&](OpId earlier) {
      int& issue = issue_of[at(earlier)];
      if (issue < 0) return;
      trace.steps.push_back({issue, id});
      trace.issues[at(issue)].waited_in = part_of(program.repeat, id);
      issue = -1;
    };
    OpId& previous = tail[at(op.stream)];
    if (previous != no_op) wait(previous);
    for (const OpId earlier : op.after) wait(earlier);
    previous = id;
    if (!op.communicates()) continue;
    const Channel channel = channel_of(op.comm);
    int c = trace.find(channel);
    if (c < 0) {
      c = static_cast<int>(trace.channels.size());
      trace.channels.push_back(channel);
      trace.sequence.emplace_back();
    }
    std::vector<int>& sequence = trace.sequence[at(c)];
    const int issue = static_cast<int>(trace.issues.size());
    trace.issues.push_back({id, c, static_cast<int>(sequence.size()), static_cast<int>(trace.steps.size()),
                            signature_of(program, id)});
    sequence.push_back(issue);
    issue_of[at(id)] = issue;
    trace.steps.push_back({issue, no_op});
  }
  return trace;
}

}  // namespace ztrain::program
