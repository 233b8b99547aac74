#pragma once
// The op table: one row per op, with its record, its adjoint rule, its cost, its workspace and the ways in
// which it may be cut. Rows stand in kernels/NAME/rules.cpp with the rules that they name. What an op reads,
// writes and carries is its record (kernels/NAME/record.hpp), how it is run its row in
// kernels/NAME/binding.cpp.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/record.hpp"
#include "model/graph.hpp"
#include "program/ir/placement.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

class Tape;

/// Tensors of a node's inputs and outputs, and the action that its ops belong to.
struct Operands {
  std::vector<TensorId> inputs, outputs;
  Action action;
};

/// What a rank has of a node, over the axes that are being placed.
struct PartOfNode {
  struct Operand {
    Placement at;
    Shape shape, whole;              ///< the rank's part, and before these axes cut it
    std::vector<model::Rows> parts;  ///< of the dim that is split: every rank's
  };
  std::vector<Operand> inputs;
  Placement output;  ///< the first
  AxisSet axes;
  int index = 0;  ///< the rank's among the ranks of the axes

  bool is_split(std::size_t input, int dim) const { return inputs[input].at == split(dim); }
  const model::Rows& own(std::size_t input) const {
    return inputs[input].parts[static_cast<std::size_t>(index)];
  }
};

/// Inputs of an op, in groups.
using OperandGroups = std::vector<std::vector<TensorId>>;
/// Inputs [0, first), [first, second), ...
OperandGroups groups_that_end(const Op& op, std::initializer_list<std::size_t> ends);

/// What the table knows of a record.
struct OpRecord {
  std::string_view name;
  Count reads, writes;
  /// Throws Error where these are not the constants of the record.
  void (*check)(const Attributes&);
  /// Whether the constant of this key may differ by micro-batch (Stepped).
  bool (*is_stepped)(std::string_view key);
  bool has_stepped;  ///< some constant may
};
template <class Record>
constexpr OpRecord record(std::string_view name) {
  return {name,
          Record::reads,
          Record::writes,
          [](const Attributes& a) { record_of<Record>(a); },
          is_stepped<Record>,
          has_stepped<Record>};
}
template <class Record>
constexpr OpRecord record() {
  return record<Record>(Record::op);
}

struct OpType {
  OpRecord record;
  /// Emits the backward ops of a node. Null: no gradient flows through it.
  void (*adjoint)(Tape&, const model::Node&) = nullptr;
  double (*flops)(const Program&, const Op&) = nullptr;
  /// Bytes of workspace, a last output that complete() adds where it is not 0; null: none, or the adjoint
  /// rule added it.
  std::int64_t (*workspace)(const Program&, const Op&) = nullptr;
  /// In training its forward and gradient are one op, emitted by its adjoint rule.
  bool forward_with_gradient = false;
  /// Of ops of a backward: gradients of parameters alone come of it (program/schedules/halves.hpp).
  bool for_weights = false;
  /// Output 0 may take the place of input 0 (and of input 1 where `overlay` is 2) when nothing else reads
  /// that later.
  int overlay = 0;
  /// Outside training its output is its input 0.
  bool training_only = false;
  /// Output 0 is input 0 in another form: what reads it gives its gradient to input 0 (Tape::source).
  bool straight_through = false;
  /// Its two inputs may be the columns of one product, side by side: its record then allows one input.
  bool joins_inputs = false;
  /// Ways in which the op works without communication, besides that of equal operands on all ranks. A node
  /// without ways is placed on no axis.
  std::span<const Way> ways{};
  /// Returns the inputs that share one entry of a way, group by group; null: each has its own entry. Inputs
  /// that are added to are in no group.
  OperandGroups (*groups)(const Op&) = nullptr;
  /// A node's equal operands are `replicated`, never `invariant`: each rank uses them in its own way.
  bool replicated_only = false;
  /// A node's equal operands are `invariant`, never `replicated`: it makes a loss, which counts once.
  bool invariant_only = false;
  /// Adapts the node's constants to the rank's part of its operands; null: none depend on it.
  void (*fit)(model::Node&, const PartOfNode&) = nullptr;
  /// Sets the constants of an op of a step or an evaluation that follow from the micro-batch or from the
  /// rank's tokens of it; null: none do. Every op whose record has Stepped constants has it.
  void (*number)(const Program&, Op&) = nullptr;
  /// Emits the forward of a node whose op is several ops, or communicates. Null: it is one op of its name.
  void (*forward)(Program&, const Operands&, const model::Node&) = nullptr;
  /// One of the ops that `forward` emits has the node's name.
  bool emits_itself = false;
  /// Recomputation keeps its results from forward: a choice is not made a second time.
  bool kept = false;
  /// Outputs from this one on have the same size on every rank, also where they are split: each rank makes
  /// one of its own rows.
  std::size_t own_size_from = any_number;
  /// A message between stages of the pipeline: recomputation does not send it again.
  bool between_stages = false;
  /// Forward does nothing: its output is its input 0.
  bool alias = false;
  /// The op that does the same without output 2: what it becomes where nothing reads that (drop_dead_ops).
  std::string_view without_third{};
};

/// Throws Error naming the op when it has no row.
const OpType& op_type(std::string_view name);

/// All rows, kind by kind.
std::vector<std::span<const OpType>> op_table();

/// Fills Op::flops, and adds the workspace output that the row asks for.
void complete(Program& program, Op& op);

/// Throws Error where an op has other operands than its record says, or other constants.
void check_record(const Op& op);

/// Appends an op with these constants; its stream, and where it communicates, is the caller's.
template <class Record>
Op& add_op(Program& program, const Record& record, std::string name, Action action,
           std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
  return program.ops.emplace_back(Op{.type = std::string(Record::op),
                                     .name = std::move(name),
                                     .inputs = std::move(inputs),
                                     .outputs = std::move(outputs),
                                     .attributes = attributes_of(record),
                                     .action = action});
}

/// Whether the op adds to what is in its outputs.
inline bool accumulates(const Op& op) {
  return op.attributes.integer(accumulate_key, 0) != 0;
}

/// The ways of a node over these axes.
std::vector<Placing> placings_of(const model::Node& node, AxisSet axes);

/// The operands of an op as its ways speak of them.
OperandGroups groups_of(const Op& op);

/// The size of a dim of an operand, for costs.
inline double dim(const Program& p, TensorId t, std::size_t d) {
  return static_cast<double>(p.tensor(t).shape[d]);
}

}  // namespace ztrain::program
