#pragma once
// Small hand-built Programs for the tests of the passes.

#include <string>
#include <utility>
#include <vector>

#include "program/passes/final_passes.hpp"

namespace ztrain::test {

using namespace ztrain::program;

class Builder {
 public:
  Program program;

  explicit Builder(std::string name = "train step", int rank = 0) {
    program.name = std::move(name);
    program.rank = rank;
  }

  TensorId transient(const std::string& name, std::int64_t count, Tier tier = Tier::device) {
    return program.add({.name = name, .shape = {count}, .tier = tier});
  }
  TensorId persistent(const std::string& name, std::int64_t count) {
    return program.add({.name = name, .shape = {count}, .category = Category::parameter, .persistent = true});
  }
  /// count fp32 elements of base, from element begin on.
  TensorId view(const std::string& name, TensorId base, std::int64_t begin, std::int64_t count) {
    return program.add({.name = name, .shape = {count}, .base = base, .offset = 4 * begin});
  }

  OpId op(const std::string& type, Stream stream, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
          Action action = {}) {
    Op op;
    op.type = type;
    op.name = "of step " + std::to_string(program.ops.size());
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.stream = stream;
    op.action = action;
    program.ops.push_back(std::move(op));
    return static_cast<OpId>(program.ops.size() - 1);
  }
  OpId release(TensorId tensor, Stream stream = Stream::compute) {
    return op("release", stream, {tensor}, {});
  }
  OpId communicate(CommKind kind, AxisSet axes, Stream stream, std::vector<TensorId> inputs,
                   std::vector<TensorId> outputs, int peer = -1) {
    const OpId id = op(std::string(name_of(kind)), stream, std::move(inputs), std::move(outputs));
    program.op(id).comm = {kind, axes, peer, 0};
    return id;
  }

  void finish() {
    link_dependencies(program);
    plan_lifetimes(program);
    plan_memory(program);
  }
};

}  // namespace ztrain::test
