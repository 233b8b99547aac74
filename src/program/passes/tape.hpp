#pragma once
// Emits the backward ops of one micro-batch, one node at a time, last node first. Adjoint rules
// (program/ops) are written against this.

#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shape.hpp"
#include "model/graph.hpp"
#include "program/ir/program.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {

/// Where an op puts a gradient. accumulate: it adds to what is there.
struct GradientTarget {
  TensorId tensor = no_tensor;
  bool accumulate = false;
};

/// The gradient tensors of the parameters in one micro-batch.
struct ParameterGradients {
  std::vector<TensorId> tensor;  ///< by parameter
  std::set<TensorId>& written;   ///< those of all micro-batches to which something has been written
};

/// By value: whether it depends on a parameter that is trained, so that backward asks for its gradient.
std::vector<bool> trained_values(const model::Graph& graph);

class Tape {
 public:
  Tape(Program& program, const model::Graph& graph, ParameterGradients& gradients, int micro);

  /// From now on ops belong to this block, and tensor(v) is values[v]: saved in forward, or recomputed.
  void enter(int block, const std::vector<TensorId>& values);

  TensorId tensor(model::ValueId v) const { return (*values_)[at(v)]; }
  std::vector<TensorId> tensors(std::span<const model::ValueId> values) const {
    std::vector<TensorId> of;
    for (const model::ValueId v : values) of.push_back(tensor(v));
    return of;
  }
  const Tensor& info(TensorId t) const { return program_.tensor(t); }
  /// What the ops will run on: some workspaces depend on it.
  Target kernels() const { return program_.target; }

  /// The step's scalars, a persistent tensor of the base program. Throws Error when there is none.
  TensorId scalars() const;

  /// False for inputs, frozen parameters and what depends on no trainable one.
  bool wants(model::ValueId v) const { return wanted_[at(v)]; }
  /// What v stands for in backward: the x of x's codes, for which gradients are; else v itself.
  model::ValueId source(model::ValueId v) const { return sources_[at(v)]; }
  /// The node that makes v.
  const model::Node& maker(model::ValueId v) const { return graph_.nodes.at(at(makers_[at(v)])); }
  /// The gradient of an output, complete since later nodes were visited first; no_tensor when nothing needs
  /// it.
  TensorId gradient(model::ValueId v) const { return entries_[at(v)].tensor; }
  /// Those of all values that have one so far.
  std::vector<TensorId> gradients() const;
  /// A place for a contribution to the gradient of v, which the caller's op then writes or adds to. For what
  /// is not wanted a place that nothing reads: rules whose op cannot leave it out use that.
  GradientTarget target(model::ValueId v);
  /// A place for the gradient of v where the op can add an earlier contribution itself: {fresh tensor, addend
  /// or none}.
  std::pair<TensorId, TensorId> target_with_addend(model::ValueId v);
  /// Calls emit with a fresh place for the gradient of v, which it is to write; an earlier contribution is
  /// added behind it.
  template <class Emit>
  void contribute(model::ValueId v, const Emit& emit) {
    contribute(std::span(&v, 1), [&](const std::vector<TensorId>& places) { emit(places[0]); });
  }
  /// The same of several values at once.
  template <class Emit>
  void contribute(std::span<const model::ValueId> values, const Emit& emit) {
    std::vector<TensorId> places, addends;
    for (const model::ValueId v : values) {
      const auto [place, addend] = target_with_addend(v);
      places.push_back(place);
      addends.push_back(addend);
    }
    emit(places);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (addends[i] != no_tensor) pass(values[i], addends[i]);
  }
  /// The gradient of v gets g unchanged (shared, never written to).
  void pass(model::ValueId v, TensorId g);

  /// An op of the current block.
  template <class Record>
  void emit(const Record& record, const std::string& name, std::vector<TensorId> inputs,
            std::vector<TensorId> outputs) {
    add_op(program_, record, name, action(), std::move(inputs), std::move(outputs));
  }
  /// The last op reads what it adds to.
  void reads(const GradientTarget& target) {
    if (target.accumulate) program_.ops.back().inputs.push_back(target.tensor);
  }
  TensorId workspace(const std::string& name, std::int64_t bytes);
  /// A tensor of the backward alone.
  TensorId temporary(const std::string& name, DType dtype, Shape shape);
  /// For ops that communicate (program/ops/emit.hpp): the Program and the action they belong to.
  Program& program() { return program_; }
  Action action() const { return {ActionKind::backward, block_, micro_}; }

 private:
  struct Entry {
    TensorId tensor = no_tensor;
    bool shared = false;
  };
  TensorId fresh(model::ValueId v);
  Entry& entry(model::ValueId v) { return entries_[at(v)]; }

  Program& program_;
  const model::Graph& graph_;
  ParameterGradients& gradients_;
  int micro_;
  int block_ = 0;
  TensorId scalars_;
  const std::vector<TensorId>* values_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<bool> wanted_;
  std::vector<model::ValueId> sources_;
  std::vector<int> makers_;  ///< by value: the number of a node, or -1
};

/// The adjoint of ops that change no value: the gradient is passed on as it is.
void pass_gradient(Tape& tape, const model::Node& node);

}  // namespace ztrain::program
