// The backward of a product of 8-bit codes. Gradients are quantised to e5m2. The library's products take both
// operands with the summed dim last, so the others are transposed as bytes: activations and gradients by the
// kernel that quantises them. Of an input the transposed codes alone are kept for backward.
//
// tensorwise: dx = dy W and dW = dy^T x are products of codes: one scale serves a matrix and its transpose.
// rowwise: dx = (dy s) C for W = diag(s) C with the forward's codes C: the weight's scales, which are powers
// of two, go into dy before that is quantised by token, so that forward and backward see the same weight, of
// which only codes are gathered. dW = dy^T x sums over tokens, along which neither operand has a scale of its
// own: it stays in bf16, from what was not quantised (torchtitan's and torchao's recipe "rowwise_with_gw_hp"
// does the same).

#include "base/error.hpp"
#include "program/passes/adjoints.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

struct Coded {
  TensorId codes = no_tensor, scales = no_tensor;
  TensorId transposed = no_tensor;  ///< the same codes
};

/// dy, coded by token, of dy times factors of its columns.
Coded quantised_rows(Tape& t, const std::string& name, TensorId dy, TensorId columns) {
  const Shape shape = t.info(dy).shape;
  const Coded coded{t.temporary("grad.codes." + name, DType::f8e5m2, shape),
                    t.temporary("grad.scales." + name, DType::f32, {shape[0]})};
  t.emit("fp8_quantize", name, {dy, columns}, {coded.codes, coded.scales}, {{"rowwise", std::int64_t{1}}});
  return coded;
}

/// dy, coded with one scale, both ways round: drop_dead_ops leaves out the transpose where nothing reads it.
Coded quantised_whole(Tape& t, const std::string& name, TensorId dy) {
  const Shape shape = t.info(dy).shape;
  const Coded coded{t.temporary("grad.codes." + name, DType::f8e5m2, shape),
                    t.temporary("grad.scales." + name, DType::f32, {1}),
                    t.temporary("grad.transposed." + name, DType::f8e5m2, {shape[1], shape[0]})};
  t.emit("fp8_quantize_both", name, {dy}, {coded.codes, coded.scales, coded.transposed},
         {{"rowwise", std::int64_t{0}}});
  return coded;
}

/// The weight's codes with the summed dim last, and what their rows are to be scaled by.
Coded transposed_weight(Tape& t, const model::Node& n, bool rowwise) {
  const TensorId codes = t.tensor(n.inputs[2]);
  const std::int64_t out = t.info(codes).shape[0], in = t.info(codes).shape[1];
  Coded coded{t.temporary("transposed." + n.name + ".weight", DType::f8e4m3, {in, out}),
              t.tensor(n.inputs[3])};
  std::vector<TensorId> outputs{coded.codes};
  if (rowwise) outputs.push_back(coded.scales = t.temporary("ones." + n.name, DType::f32, {in}));
  t.emit("fp8_transpose", n.name, {codes}, std::move(outputs));
  return coded;
}

/// A product into a gradient.
template <class To>
void product(Tape& t, const char* type, const model::Node& n, std::vector<TensorId> inputs, const To& to,
             bool rowwise) {
  if (to.accumulate) inputs.push_back(to.tensor);
  t.emit(type, n.name, std::move(inputs), {to.tensor},
         {{"accumulate", std::int64_t{to.accumulate}}, {"rowwise", std::int64_t{rowwise}}});
}

}  // namespace

void linear_fp8_adjoint(Tape& t, const model::Node& n) {
  const bool rowwise = n.attributes.integer("rowwise") != 0;
  const model::ValueId x = t.source(n.inputs[0]), w = n.inputs[2];
  const TensorId dy = t.gradient(n.outputs[0]);
  Coded gradient;
  if (!rowwise && (t.wants(x) || t.wants(w))) gradient = quantised_whole(t, n.name, dy);
  if (rowwise && t.wants(x)) gradient = quantised_rows(t, n.name, dy, t.tensor(n.inputs[3]));
  if (t.wants(x)) {
    const Coded weight = transposed_weight(t, n, rowwise);
    product(t, "linear_fp8_grad_input", n, {gradient.codes, gradient.scales, weight.codes, weight.scales},
            t.target(x), rowwise);
  }
  if (t.wants(w) && rowwise) product(t, "linear_grad_weight", n, {dy, t.tensor(x)}, t.target(w), rowwise);
  if (t.wants(w) && !rowwise) {
    const model::Node& maker = t.maker(n.inputs[0]);
    ASSERT(maker.op == "fp8_quantize_both", "{}: its input's codes come from {}, which gives no transpose",
           n.name, maker.name);
    const TensorId input = t.tensor(maker.outputs[2]);
    product(t, "linear_fp8_grad_weight", n,
            {gradient.transposed, gradient.scales, input, t.tensor(n.inputs[1])}, t.target(w), rowwise);
  }
  if (n.inputs.size() > 4 && t.wants(n.inputs[4])) {
    const auto db = t.target(n.inputs[4]);
    std::vector<TensorId> inputs{dy};
    if (db.accumulate) inputs.push_back(db.tensor);
    t.emit("linear_grad_bias", n.name, std::move(inputs), {db.tensor},
           {{"accumulate", std::int64_t{db.accumulate}}});
  }
}

}  // namespace ztrain::program
