#include "program/jobs/numbering.hpp"

#include <map>
#include <string>

#include "base/error.hpp"
#include "kernels/dropout/record.hpp"
#include "program/passes/expand.hpp"

namespace ztrain::program {

void number_later(Program& program, std::size_t from, int micros, const std::vector<TensorId>& results) {
  std::map<TensorId, TensorId> later;
  const auto later_of = [&](TensorId id) {
    const Tensor& tensor = program.tensor(id);
    const bool row = !results.empty() && tensor.base == results[0];
    if (!row && tensor.category != Category::input) return id;
    const auto [it, fresh] = later.try_emplace(id, no_tensor);
    if (!fresh) return it->second;
    if (row) {
      Tensor moved = tensor;
      moved.offset += micros * moved.bytes();
      return it->second = program.add(std::move(moved));
    }
    const std::size_t dot = tensor.name.rfind('.');
    const int micro = std::stoi(tensor.name.substr(dot + 1)) + micros;
    it->second = program.find(input_name(tensor.name.substr(0, dot), micro));
    ASSERT(it->second != no_tensor, "the program has no input of micro-batch {} for '{}'", micro,
           tensor.name);
    return it->second;
  };
  while (from < program.ops.size() && !is_compute(program.ops[from].action.kind)) ++from;
  for (; from < program.ops.size(); ++from) {
    Op& op = program.ops[from];
    if (op.action.micro >= 0) op.action.micro += micros;
    for (auto* operands : {&op.inputs, &op.outputs})
      for (TensorId& id : *operands) id = later_of(id);
  }
}

void number_tokens(Program& program) {
  const Coordinate at(program.mesh, program.rank);
  for (Op& op : program.ops) {
    if (op.type != Dropout::op) continue;
    const std::int64_t batch =
        op.action.micro * program.mesh.size(sequence_axes) + at.index_in(sequence_axes);
    edit<Dropout>(op.attributes, [&](Dropout& mask) {
      const std::int64_t own = program.tensor(op.inputs[Dropout::x]).shape[0];
      const std::int64_t all = mask.part_of > 0 ? mask.part_of : own;
      const std::vector<TokenRun> runs =
          program.token_order.runs(all, mask.part_begin, mask.part_begin + own);
      ASSERT(runs.size() <= 2, "{}: tokens in {} runs", op.name, runs.size());
      mask.first_token = batch * (program.tokens > 0 ? program.tokens : all) + runs.front().token;
      if (runs.size() == 1) return;
      mask.gap_at = runs.front().count;
      mask.gap = runs.back().token - runs.front().token - mask.gap_at;
    });
  }
}

}  // namespace ztrain::program
