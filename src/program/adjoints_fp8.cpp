// The backward of a product of 8-bit codes. Gradients are quantised to e5m2. The library's products take both
// operands with the summed dim last, so the others are transposed as bytes.
//
// tensorwise: dx = dy W and dW = dy^T x are products of codes: one scale serves a matrix and its transpose.
// rowwise: dx = (dy s) C for W = diag(s) C with the forward's codes C: the weight's scales, which are powers
// of two, go into dy before that is quantised by token, so that forward and backward see the same weight, of
// which only codes are gathered. dW = dy^T x sums over tokens, along which neither operand has a scale of its
// own: it stays in bf16, from what was not quantised (torchtitan's and torchao's recipe "rowwise_with_gw_hp"
// does the same).

#include "program/adjoints.hpp"
#include "program/tape.hpp"

namespace ztrain::program {
namespace {

/// dy, coded: [T, n] with one scale or one per token. columns: factors of dy's columns, or none.
struct Coded {
  TensorId codes = no_tensor, scales = no_tensor;
};

Coded quantised(Tape& t, const std::string& name, TensorId dy, TensorId columns) {
  const Shape shape = t.info(dy).shape;
  const bool rowwise = columns != no_tensor;
  const Coded coded{t.temporary("grad.codes." + name, DType::f8e5m2, shape),
                    t.temporary("grad.scales." + name, DType::f32, {rowwise ? shape[0] : 1})};
  std::vector<TensorId> inputs{dy};
  if (rowwise) inputs.push_back(columns);
  t.emit("fp8_quantize", name, std::move(inputs), {coded.codes, coded.scales},
         {{"rowwise", std::int64_t{rowwise}}});
  return coded;
}

TensorId transposed(Tape& t, const std::string& name, TensorId codes) {
  if (const TensorId done = t.existing("fp8_transpose", codes); done != no_tensor) return done;
  const Tensor& info = t.info(codes);
  const DType dtype = info.dtype;
  const TensorId out = t.temporary("transposed." + name, dtype, {info.shape[1], info.shape[0]});
  t.emit("fp8_transpose", name, {codes}, {out});
  return out;
}

/// The weight's codes with the summed dim last, and what their rows are to be scaled by.
Coded transposed_weight(Tape& t, const model::Node& n, bool rowwise) {
  const TensorId codes = t.tensor(n.inputs[2]);
  if (!rowwise) return {transposed(t, n.name + ".weight", codes), t.tensor(n.inputs[3])};
  const std::int64_t out = t.info(codes).shape[0], in = t.info(codes).shape[1];
  const Coded coded{t.temporary("transposed." + n.name + ".weight", DType::f8e4m3, {in, out}),
                    t.temporary("ones." + n.name, DType::f32, {in})};
  t.emit("fp8_transpose", n.name, {codes}, {coded.codes, coded.scales});
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
  if (t.wants(x) || (t.wants(w) && !rowwise))
    gradient = quantised(t, n.name, dy, rowwise ? t.tensor(n.inputs[3]) : no_tensor);
  if (t.wants(x)) {
    const Coded weight = transposed_weight(t, n, rowwise);
    product(t, "linear_fp8_grad_input", n, {gradient.codes, gradient.scales, weight.codes, weight.scales},
            t.target(x), rowwise);
  }
  if (t.wants(w) && rowwise) product(t, "linear_grad_weight", n, {dy, t.tensor(x)}, t.target(w), rowwise);
  if (t.wants(w) && !rowwise) {
    const TensorId codes = t.tensor(n.inputs[0]);
    product(t, "linear_fp8_grad_weight", n,
            {transposed(t, n.name + ".grad", gradient.codes), gradient.scales,
             transposed(t, n.name + ".input", codes), t.tensor(n.inputs[1])},
            t.target(w), rowwise);
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
