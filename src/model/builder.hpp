#pragma once
// Emits forward ops into a Graph; shapes follow from the inputs. Families use this alone.

#include "kernels/activation/record.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/embedding/record.hpp"
#include "kernels/head/record.hpp"
#include "kernels/heads/record.hpp"
#include "kernels/norm/record.hpp"
#include "kernels/rope/record.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

class Builder {
 public:
  /// compute: dtype of parameters and activations. Norm statistics and rope tables are fp32 (fp64 for fp64).
  explicit Builder(DType compute) : compute_(compute) {}

  /// Nodes from here on are of this block, parameters of its unit.
  int block(std::string name);
  /// Nodes from here on carry this tag; see Node::piece. A new block begins without one.
  void piece(std::string tag) { piece_ = std::move(tag); }
  ValueId input(const std::string& name, DType dtype, Shape shape);
  /// Of the current block's unit. Named "<prefix>.weight" and so on by the caller.
  ValueId parameter(const std::string& name, Shape shape, Init init, double init_std = 0);
  /// Makes a parameter of the dtype of statistics that no loss has a gradient of.
  ValueId constant(const std::string& name, Shape shape, Init init);
  /// Makes one parameter for `count` experts, of which a token goes to `used`; `shape` is that of one of
  /// them.
  ValueId expert_parameter(const std::string& name, std::int64_t count, std::int64_t used, Shape shape,
                           Init init, double init_std = 0);

  ValueId embedding(const std::string& name, ValueId tokens, ValueId weight) {
    return emit(Embedding{}, name, {tokens, weight}, {shape(tokens)[0], shape(weight)[1]}, compute_);
  }
  /// Of each row of x, or of each head, whose width is the weight's.
  ValueId rms_norm(const std::string& name, ValueId x, ValueId weight, const RmsNorm& norm);
  /// Emits layer normalisation of each row of x. weight and bias have the row's width.
  ValueId layer_norm(const std::string& name, ValueId x, ValueId weight, ValueId bias, double eps);
  /// Emits RMSNorm of each row of x. The tensor ranks may each hold a part of the columns.
  ValueId wide_rms_norm(const std::string& name, ValueId x, ValueId weight, double eps) {
    const ValueId squares = emit(RowSquares{}, name + ".squares", {x}, {shape(x)[0]}, statistics());
    return emit(RmsScale{eps, shape(x)[1]}, name, {x, weight, squares}, shape(x), compute_);
  }
  /// bias: -1 for none.
  ValueId linear(const std::string& name, ValueId x, ValueId weight, ValueId bias = -1);
  ValueId rope_table(const std::string& name, ValueId positions, const RopeTable& rope) {
    return emit(rope, name, {positions}, {shape(positions)[0], rope.width}, statistics());
  }
  ValueId rope(const std::string& name, ValueId x, ValueId table, const Rope& rope) {
    return emit(rope, name, {x, table}, shape(x), compute_);
  }
  /// sinks: -1 for none.
  ValueId attention(const std::string& name, ValueId q, ValueId k, ValueId v, ValueId document_start,
                    const Attention& attention, ValueId sinks = -1);
  /// Emits one op. outputs: the end of the name of each, and its columns.
  std::vector<ValueId> head_parts(const std::string& name, const HeadParts& parts,
                                  std::vector<ValueId> inputs,
                                  const std::vector<std::pair<std::string, std::int64_t>>& outputs);
  /// activation: a name of kernels/activation.
  ValueId gated_activation(const std::string& name, ValueId gate, ValueId up, std::string activation) {
    return emit(GatedActivation{std::move(activation)}, name, {gate, up}, shape(gate), compute_);
  }
  ValueId activation(const std::string& name, ValueId x, std::string activation) {
    return emit(Activation{std::move(activation)}, name, {x}, shape(x), compute_);
  }
  ValueId xielu(const std::string& name, ValueId x, ValueId alpha_p, ValueId alpha_n) {
    return emit(Xielu{}, name, {x, alpha_p, alpha_n}, shape(x), compute_);
  }
  ValueId add(const std::string& name, ValueId a, ValueId b) {
    return emit(Add{}, name, {a, b}, shape(a), compute_);
  }
  /// Returns the value rounded to the dtype of activations, as a factor that is kept in that dtype is.
  double rounded(double value) const;
  /// Multiplies by the factor in fp32 (fp64 for fp64), and rounds once.
  ValueId scale(const std::string& name, ValueId x, double factor) {
    return emit(Scale{factor}, name, {x}, shape(x), compute_);
  }
  /// cap tanh(x / cap), of logits that are the result: the op has no adjoint.
  ValueId soft_cap(const std::string& name, ValueId x, double cap) {
    return emit(SoftCap{cap}, name, {x}, shape(x), compute_);
  }
  ValueId select_row(const std::string& name, ValueId x, ValueId index) {
    return emit(SelectRow{}, name, {x, index}, {1, shape(x)[1]}, compute_);
  }
  /// fp64 [2]: {sum of weighted nll, sum of weights}.
  ValueId head_loss(const std::string& name, ValueId x, ValueId weight, ValueId targets, ValueId weights,
                    const LogitCap& loss = {}) {
    return emit(HeadLoss{loss}, name, {x, weight, targets, weights}, {2}, DType::f64);
  }

  /// Emits the record's op, whose first output has this shape and dtype.
  template <class Record>
  ValueId emit(const Record& record, const std::string& name, std::vector<ValueId> inputs, Shape shape,
               DType dtype) {
    return append(Record::op, name, std::move(inputs), std::move(shape), dtype, attributes_of(record));
  }
  /// Adds an output to the op that was emitted last.
  ValueId extra_output(const std::string& name, Shape shape, DType dtype);

  Graph finish(ValueId result, ExpertReport experts = {}, PairValues pairs = {},
               TeacherValues teacher = {}) &&;
  const Shape& shape(ValueId v) const { return graph_.value(v).shape; }
  DType compute() const { return compute_; }
  DType statistics() const { return compute_ == DType::f64 ? DType::f64 : DType::f32; }

 private:
  int current_unit() const { return static_cast<int>(graph_.units.size()) - 1; }
  ValueId append(std::string_view op, const std::string& name, std::vector<ValueId> inputs, Shape shape,
                 DType dtype, Attributes attributes);

  DType compute_;
  std::string piece_;
  Graph graph_;
};

}  // namespace ztrain::model
