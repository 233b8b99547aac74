// A Program as it is issued: op by op for messages, and written out.

#include <fmt/format.h>

#include <map>

#include "base/error.hpp"
#include "base/index.hpp"
#include "program/ir/repeat.hpp"

namespace ztrain::program {
namespace {

class Unroller {
 public:
  explicit Unroller(const Program& program)
      : program_(program), repeat_(program.repeat), images_(images_of(program)), result_(program) {
    result_.ops.clear();
    result_.repeat = {};
    for (Tensor& t : result_.tensors) t.step = 0;
  }

  Program run() {
    const Issues issues(program_);
    result_.ops.reserve(at(issues.size()));
    for (OpId issue = 0; issue < issues.size(); ++issue) {
      const OpId id = issues.id(issue);
      const int time = issues.time(issue);
      Op op = op_at(program_, id, time);
      op.after.clear();
      issues.each_before(issue, [&](OpId earlier) { op.after.push_back(earlier); });
      if (repeat_.contains(id))
        for (auto* operands : {&op.inputs, &op.outputs})
          for (TensorId& t : *operands) t = instance(t, time);
      result_.ops.push_back(std::move(op));
    }
    move_lives();
    return std::move(result_);
  }

 private:
  OpId further() const { return (repeat_.times - 1) * repeat_.length(); }
  bool born_before(TensorId t) const { return program_.tensor(t).first < repeat_.begin; }

  /// The tensor that the body names t at this time. What is carried from one time to the next is made by the
  /// time before, under the name that the copy has for it.
  TensorId instance(TensorId t, int time) {
    const Tensor& tensor = program_.tensor(t);
    const TensorId image = images_[at(t)];
    if (tensor.base != no_tensor) return view(t, time);
    if (image == t || (time == 0 && (tensor.persistent || born_before(t)))) return t;
    if (tensor.persistent) return t + (image - t) / repeat_.times * time;
    if (born_before(t)) return instance(image, time - 1);
    return time == repeat_.times - 1 ? t : copy(t, time);
  }

  TensorId view(TensorId t, int time) {
    const Tensor& tensor = program_.tensor(t);
    const TensorId base = instance(tensor.base, time);
    if (base == tensor.base && (tensor.step == 0 || time == 0)) return t;
    const auto [it, fresh] = copies_.try_emplace({t, time}, no_tensor);
    if (fresh) {
      Tensor moved = tensor;
      moved.base = base;
      moved.offset += time * tensor.step;
      moved.step = 0;
      it->second = result_.add(std::move(moved));
    }
    return it->second;
  }

  TensorId copy(TensorId t, int time) {
    const auto [it, fresh] = copies_.try_emplace({t, time}, no_tensor);
    if (fresh) {
      Tensor other = program_.tensor(t);
      other.first += time * repeat_.length();
      other.last += time * repeat_.length();
      it->second = result_.add(std::move(other));
    }
    return it->second;
  }

  /// Of the tensors that keep their names: those of the last time, and of what comes before and after the
  /// body.
  void move_lives() {
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      Tensor& tensor = result_.tensors[t];
      const TensorId image = images_[t];
      const bool ends_in_body =
          born_before(static_cast<TensorId>(t)) && image != no_tensor && image != static_cast<TensorId>(t);
      if (tensor.first >= repeat_.begin) tensor.first += further();
      if (tensor.last >= repeat_.begin && !ends_in_body) tensor.last += further();
    }
  }

  const Program& program_;
  const Repeat& repeat_;
  std::vector<TensorId> images_;
  Program result_;
  std::map<std::pair<TensorId, int>, TensorId> copies_;
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
  if (op.action.micro >= 0) op.action.micro += time;
  for (const AttributeStep& step : program.repeat.attributes)
    if (step.op == id) op.attributes.set(step.key, op.attributes.integer(step.key) + time * step.by);
  return op;
}

Program unrolled(const Program& program) {
  return program.repeat.times == 1 ? program : Unroller(program).run();
}

}  // namespace ztrain::program
