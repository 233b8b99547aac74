#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/signs/record.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

/// Tensors whose bytes are a block for each of so many ranks, and not rows of columns.
class Blocks {
 public:
  explicit Blocks(const Program& program) : program_(program) {}

  void visit(OpId id) {
    id_ = id;
    const Op& op = program_.op(id);
    if (op.type == SwapBlocks::op) return swap(op);
    if (op.comm.kind == CommKind::all_to_all) return exchange(op);
    if (op.type == SumCodes::op) return add_up(op);
    if (op.type == SumSigns::op) return add_up_signs(op);
    for (const TensorId t : op.inputs)
      if (blocks_of(t) > 0) refuse(t, "holds blocks for {} ranks, and is read as rows", blocks_of(t));
    for (const TensorId t : op.outputs) blocks_.erase(program_.storage(t));
  }

 private:
  /// 0: rows.
  std::int64_t blocks_of(TensorId t) const {
    const auto it = blocks_.find(program_.storage(t));
    return it == blocks_.end() ? 0 : it->second;
  }

  template <class... Values>
  [[noreturn]] void refuse(TensorId t, fmt::format_string<Values...> text, Values... values) const {
    fail("{}: '{}' {}", describe(program_, id_), program_.tensor(t).name,
         fmt::format(text, std::forward<Values>(values)...));
  }

  void require_shape(TensorId t, const Shape& shape) const {
    if (program_.tensor(t).shape != shape)
      refuse(t, "is {}, and {} come of it", ztrain::to_string(program_.tensor(t).shape),
             ztrain::to_string(shape));
  }

  /// Rows become blocks, or blocks rows.
  void swap(const Op& op) {
    const TensorId x = op.inputs[SwapBlocks::x], y = op.outputs[SwapBlocks::y];
    const Shape& from = program_.tensor(x).shape;
    const auto cut = record_of<SwapBlocks>(op.attributes);
    const std::int64_t blocks = blocks_of(x);
    const std::int64_t rows = blocks > 0 ? cut.inner : cut.outer, ranks = blocks > 0 ? cut.outer : cut.inner;
    if (blocks > 0 ? ranks != blocks || rows * ranks != from[0] : rows != from[0] || from[1] % ranks != 0)
      refuse(x, "is {}, and taken for {} rows of blocks for {} ranks", ztrain::to_string(from), rows, ranks);
    turn(blocks > 0, x, y, {rows, from[1] * ranks}, ranks);
  }

  /// y becomes rows of this shape, which blocks were, or blocks for so many ranks, of the shape of x.
  void turn(bool to_rows, TensorId x, TensorId y, const Shape& rows, std::int64_t ranks) {
    require_shape(y, to_rows ? rows : program_.tensor(x).shape);
    blocks_[program_.storage(y)] = to_rows ? 0 : ranks;
  }

  /// A block goes to each rank, and one comes from each.
  void exchange(const Op& op) {
    const TensorId x = op.inputs[0], y = op.outputs[0];
    const Shape& from = program_.tensor(x).shape;
    const std::int64_t ranks = program_.mesh.size(op.comm.axes), blocks = blocks_of(x);
    if (blocks > 0 && blocks != ranks) refuse(x, "holds blocks for {} ranks, and goes to {}", blocks, ranks);
    turn(blocks > 0, x, y, blocks > 0 ? Shape{from[0] * ranks, from[1] / ranks} : Shape{}, ranks);
  }

  /// Blocks of codes, one of each rank, become their sum, once.
  void add_up(const Op& op) {
    const TensorId codes = op.inputs[SumCodes::codes], sum = op.outputs[SumCodes::values];
    const auto axes = AxisSet::from_bits(static_cast<std::uint32_t>(record_of<SumCodes>(op.attributes).axes));
    const std::int64_t ranks = program_.mesh.size(axes), blocks = std::max<std::int64_t>(1, blocks_of(codes));
    const std::int64_t coded = program_.tensor(codes).shape[0] * code_quantum;
    if (blocks != ranks || coded != ranks * elements(program_.tensor(sum).shape))
      refuse(codes, "holds {} elements of {} ranks, and is added up for {} of {}", coded, blocks,
             elements(program_.tensor(sum).shape), ranks);
    blocks_.erase(program_.storage(codes));
    blocks_.erase(program_.storage(sum));
  }

  /// Each rank has as many signs as come of them.
  void add_up_signs(const Op& op) {
    const TensorId terms = op.inputs[SumSigns::terms], sum = op.outputs[SumSigns::codes];
    const auto axes = AxisSet::from_bits(static_cast<std::uint32_t>(record_of<SumSigns>(op.attributes).axes));
    const std::int64_t ranks = program_.mesh.size(axes), blocks = blocks_of(terms);
    if (blocks != ranks || program_.tensor(terms).shape[0] != ranks * program_.tensor(sum).shape[0])
      refuse(terms, "holds signs of {} ranks, and is added up for {}", blocks, ranks);
    blocks_.erase(program_.storage(terms));
    blocks_.erase(program_.storage(sum));
  }

  const Program& program_;
  OpId id_ = -1;
  std::map<TensorId, std::int64_t> blocks_;  ///< by tensor that holds bytes
};

}  // namespace

void verify_blocks(const Program& program) {
  Blocks blocks(program);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) blocks.visit(id);
}

}  // namespace ztrain::program
