#include <algorithm>

#include "program/ir/order.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {

void plan_lifetimes(Program& program) {
  for (Tensor& tensor : program.tensors) tensor.first = tensor.last = no_op;
  std::vector<char> released(program.tensors.size(), 0);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.op(id);
    const auto touch = [&](TensorId tensor) {
      const ByteRange range = byte_range(program, tensor);
      Tensor& holder = program.tensor(range.base);
      // A use after the release does not lengthen the life: verify_rank refuses it.
      if (holder.persistent || range.empty() || released[static_cast<std::size_t>(range.base)]) return;
      if (holder.first == no_op) holder.first = id;
      holder.last = id;
    };
    for (const TensorId tensor : op.inputs) touch(tensor);
    for (const TensorId tensor : op.outputs) touch(tensor);
    if (!is_release(op)) continue;
    for (const TensorId tensor : op.inputs) released[static_cast<std::size_t>(program.storage(tensor))] = 1;
  }
}

}  // namespace ztrain::program
