// A Program as it is issued: op by op for messages, and written out.

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/loops/repeat.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

class Unroller {
 public:
  Unroller(const Program& program, int times)
      : program_(program), times_(times), rings_(program.repeat.rings), result_(program) {
    result_.ops.clear();
    result_.repeat = {};
    result_.repeat.times = program.repeat.times - times + 1;
    for (Tensor& t : result_.tensors) t.step = 0, t.ring = -1, t.ring_index = 0;
  }

  Program run() {
    const Issues issues(program_, times_);
    result_.ops.reserve(at(issues.size()));
    for (OpId issue = 0; issue < issues.size(); ++issue) {
      const OpId id = issues.id(issue);
      const int time = issues.time(issue);
      Op op = op_at(program_, id, time);
      op.after.clear();
      issues.each_before(issue, [&](OpId earlier) { op.after.push_back(earlier); });
      const bool in_body = program_.repeat.contains(id);
      for (auto* operands : {&op.inputs, &op.outputs})
        for (TensorId& t : *operands)
          t = in_body ? in_body_at(t, time) : id < program_.repeat.begin ? t : moved_on(t, times_ - 1);
      result_.ops.push_back(std::move(op));
    }
    plan_lifetimes(result_);
    return std::move(result_);
  }

 private:
  /// The tensor that the body names t at this time.
  TensorId in_body_at(TensorId t, int time) {
    const Tensor& tensor = program_.tensor(t);
    if (tensor.base != no_tensor) return view(t, in_body_at(tensor.base, time), time);
    return later(t, time);
  }

  /// The tensor that ops behind the body name t. Inputs are those of the whole step there.
  TensorId moved_on(TensorId t, int times) {
    const Tensor& tensor = program_.tensor(t);
    if (tensor.base != no_tensor) return view(t, moved_on(tensor.base, times), 0);
    return tensor.persistent ? t : later(t, times);
  }

  /// The tensor of its ring that is so many iterations later; t itself if it is in none.
  TensorId later(TensorId t, int times) {
    const Tensor& tensor = program_.tensor(t);
    if (tensor.ring < 0) return t;
    Ring& ring = rings_[at(tensor.ring)];
    const std::size_t index = at(tensor.ring_index + times);
    while (ring.tensors.size() <= index) ring.tensors.push_back(one_more(ring));
    return ring.tensors[index];
  }

  TensorId one_more(const Ring& ring) {
    Tensor tensor = program_.tensor(ring.tensors.front());
    tensor.address = program_.tensor(ring.slot_of(static_cast<int>(ring.tensors.size()))).address;
    tensor.ring = -1;
    tensor.ring_index = 0;
    return result_.add(std::move(tensor));
  }

  TensorId view(TensorId t, TensorId base, int time) {
    const Tensor& tensor = program_.tensor(t);
    if (base == tensor.base && (tensor.step == 0 || time == 0)) return t;
    const auto [it, fresh] = views_.try_emplace({t, base, time}, no_tensor);
    if (fresh) {
      Tensor moved = tensor;
      moved.base = base;
      moved.offset += time * tensor.step;
      // Of the last time: also what the times that are left out would come to.
      moved.step = time == times_ - 1 && times_ < program_.repeat.times ? tensor.step : 0;
      it->second = result_.add(std::move(moved));
    }
    return it->second;
  }

  const Program& program_;
  int times_;
  std::vector<Ring> rings_;  ///< with the tensors of further iterations
  Program result_;
  std::map<std::tuple<TensorId, TensorId, int>, TensorId> views_;  ///< by view, its base and time
};

std::string place(const Program& program, const Op& op, int micro) {
  std::string text(name_of(op.action.kind));
  // What goes between stages is of a block, too.
  const bool of_block = is_compute(op.action.kind) || op.attributes.integer("boundary", 0) > 0;
  const std::vector<std::string>& parts = of_block ? program.blocks : program.units;
  if (op.action.part >= 0 && op.action.part < std::ssize(parts)) text += " " + parts[at(op.action.part)];
  if (micro >= 0) text += fmt::format(" micro {}", micro);
  return text;
}

std::string describe(const Program& program, const Op& op, int micro, OpId number) {
  return fmt::format("{}: {} {} (op {})", place(program, op, micro), op.type, op.name, number);
}

}  // namespace

std::string describe(const Program& program, OpId id) {
  const Op& op = program.op(id);
  return describe(program, op, op.action.micro, id);
}

std::string describe_issue(const Program& program, OpId issue) {
  const Issues issues(program);
  return describe(program, issues.op(issue), issues.micro(issue), issue);
}

std::string place_of_issue(const Program& program, OpId issue) {
  const Issues issues(program);
  return place(program, issues.op(issue), issues.micro(issue));
}

Op op_at(const Program& program, OpId id, int time) {
  Op op = program.op(id);
  if (op.action.micro >= 0) op.action.micro += time * program.repeat.stride;
  for (const AttributeStep& step : program.repeat.attributes)
    if (step.op == id) op.attributes.set(step.key, op.attributes.integer(step.key) + time * step.by);
  return op;
}

Program unrolled(const Program& program) {
  return unrolled(program, program.repeat.times);
}

Program unrolled(const Program& program, int times) {
  return program.repeat.times == 1 ? program : Unroller(program, times).run();
}

}  // namespace ztrain::program
