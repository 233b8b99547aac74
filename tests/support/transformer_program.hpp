#pragma once
// A Program with the tensors, lifetimes and streams of a fully sharded transformer step: gathers one unit
// ahead on their own stream, activations stacked through forward and freed in backward, gradients written
// through views of a flat buffer and reduced on a third stream. Sizes only: no op of it has a kernel.

#include "base/shape.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::test {

struct TransformerShape {
  int layers = 32, micros = 8;
  std::int64_t tokens = 2048, hidden = 4096, wide = 11008, heads = 32, vocabulary = 32000;
  bool recompute = false;   ///< saves only the input of each layer
  bool accumulate = false;  ///< whole gradients stay from the first micro-batch to the last
};

class TransformerProgram : public Builder {
 public:
  explicit TransformerProgram(const TransformerShape& shape) : s_(shape) {
    program.mesh[Axis::shard] = 8;
    for (int u = 0; u < units(); ++u) {
      program.units.push_back("unit " + std::to_string(u));
      shards_.push_back(persistent("shard." + std::to_string(u), elements(u) / 8));
      sums_.push_back(persistent("gradient." + std::to_string(u), elements(u) / 8));
    }
    accumulated_.assign(static_cast<std::size_t>(units()), no_tensor);
    for (int m = 0; m < s_.micros; ++m) micro(m);
  }

 private:
  using List = std::vector<TensorId>;
  int units() const { return s_.layers + 2; }
  std::int64_t elements(int u) const {
    const std::int64_t whole = u == 0 || u == units() - 1
                                   ? s_.vocabulary * s_.hidden
                                   : 4 * s_.hidden * s_.hidden + 3 * s_.hidden * s_.wide + 2 * s_.hidden;
    return round_up(whole, 8 * 256);
  }

  TensorId make(std::int64_t width, const char* name) {
    return transient(name + std::to_string(program.tensors.size()), s_.tokens * width);
  }

  void gather(int u) {
    if (u < 0 || u >= units()) return;
    full_ = transient("gathered." + std::to_string(u), elements(u));
    gathered_[at(u)] = full_;
    op("all_gather", Stream::gather, {shards_[at(u)]}, {full_}, {ActionKind::gather, u});
  }
  TensorId weight(int u, int part) {
    const std::int64_t count = elements(u) / 8;
    return view("weight", gathered_[at(u)], part * count, count);
  }

  struct Saved {
    TensorId input, norm1, q, k, v, lse, attention, middle, norm2, gate, up, product;
  };

  TensorId step(const char* type, List inputs, std::int64_t width, Action action) {
    const TensorId out = make(width, type);
    op(type, Stream::compute, std::move(inputs), {out}, action);
    return out;
  }

  TensorId layer(int u, Action action, TensorId input, Saved& saved) {
    const std::int64_t h = s_.hidden, w = s_.wide;
    saved.input = input;
    saved.norm1 = step("rmsnorm", {input, weight(u, 0)}, h, action);
    saved.q = step("linear", {saved.norm1, weight(u, 1)}, h, action);
    saved.k = step("linear", {saved.norm1, weight(u, 1)}, h / 4, action);
    saved.v = step("linear", {saved.norm1, weight(u, 2)}, h / 4, action);
    saved.attention = make(h, "attention");
    saved.lse = make(s_.heads, "lse");
    op("attention", Stream::compute, {saved.q, saved.k, saved.v}, {saved.attention, saved.lse}, action);
    const TensorId projected = step("linear", {saved.attention, weight(u, 3)}, h, action);
    saved.middle = step("add", {input, projected}, h, action);
    saved.norm2 = step("rmsnorm", {saved.middle, weight(u, 4)}, h, action);
    saved.gate = step("linear", {saved.norm2, weight(u, 5)}, w, action);
    saved.up = step("linear", {saved.norm2, weight(u, 6)}, w, action);
    saved.product = step("swiglu", {saved.gate, saved.up}, w, action);
    const TensorId down = step("linear", {saved.product, weight(u, 7)}, h, action);
    return step("add", {saved.middle, down}, h, action);
  }

  TensorId begin_gradient(int u) {
    if (!s_.accumulate) return transient("flat gradient", elements(u));
    TensorId& kept = accumulated_[at(u)];
    if (kept != no_tensor) return kept;
    kept = transient("flat gradient", elements(u));
    op("fill", Stream::compute, {}, {kept});
    return kept;
  }
  void weight_gradient(int u, TensorId flat, int part, List inputs, Action action) {
    const std::int64_t count = elements(u) / 8;
    const TensorId part_of = view("weight gradient", flat, part * count, count);
    if (s_.accumulate) inputs.push_back(part_of);
    op("linear_grad_weight", Stream::compute, std::move(inputs), {part_of}, action);
  }
  void reduce(int u, int m, TensorId flat) {
    if (s_.accumulate && m + 1 < s_.micros) return;
    const TensorId workspace = transient("workspace", elements(u) / 8 * 7);
    op("reduce_scatter", Stream::reduce, {flat, sums_[at(u)]}, {sums_[at(u)], workspace},
       {ActionKind::reduce, u, m});
    release(flat, Stream::reduce);
  }

  TensorId layer_backward(int u, int m, const Saved& s, TensorId grad) {
    const std::int64_t h = s_.hidden, w = s_.wide;
    const Action action{ActionKind::backward, u, m};
    const TensorId flat = begin_gradient(u);
    const TensorId d_product = step("linear_grad_input", {grad, weight(u, 7)}, w, action);
    weight_gradient(u, flat, 7, {grad, s.product}, action);
    const TensorId d_gate = make(w, "d_gate"), d_up = make(w, "d_up");
    op("swiglu_grad", Stream::compute, {d_product, s.gate, s.up}, {d_gate, d_up}, action);
    TensorId d_norm2 = step("linear_grad_input", {d_gate, weight(u, 5)}, h, action);
    op("linear_grad_input", Stream::compute, {d_up, weight(u, 6), d_norm2}, {d_norm2}, action);
    weight_gradient(u, flat, 5, {d_gate, s.norm2}, action);
    weight_gradient(u, flat, 6, {d_up, s.norm2}, action);
    const TensorId d_middle = step("rmsnorm_grad", {d_norm2, s.middle, weight(u, 4), grad}, h, action);
    weight_gradient(u, flat, 4, {d_norm2, s.middle}, action);
    const TensorId d_attention = step("linear_grad_input", {d_middle, weight(u, 3)}, h, action);
    weight_gradient(u, flat, 3, {d_middle, s.attention}, action);
    const TensorId dq = make(h, "dq"), dk = make(h / 4, "dk"), dv = make(h / 4, "dv");
    op("attention_grad", Stream::compute, {d_attention, s.q, s.k, s.v, s.attention, s.lse}, {dq, dk, dv},
       action);
    const TensorId d_norm1 = step("linear_grad_input", {dq, dk, dv, weight(u, 1), weight(u, 2)}, h, action);
    weight_gradient(u, flat, 1, {dq, dk, s.norm1}, action);
    weight_gradient(u, flat, 2, {dv, s.norm1}, action);
    const TensorId d_input = step("rmsnorm_grad", {d_norm1, s.input, weight(u, 0), d_middle}, h, action);
    weight_gradient(u, flat, 0, {d_norm1, s.input}, action);
    reduce(u, m, flat);
    return d_input;
  }

  /// The embedding and the head: all of the unit's weights in one op.
  TensorId whole_backward(int u, int m, List inputs) {
    const Action action{ActionKind::backward, u, m};
    const TensorId flat = begin_gradient(u);
    const TensorId grad = step("grad", inputs, s_.hidden, action);
    for (int part = 0; part < 8; ++part) weight_gradient(u, flat, part, inputs, action);
    reduce(u, m, flat);
    return grad;
  }

  void micro(int m) {
    gathered_.assign(at(units()), no_tensor);
    const int head = units() - 1;
    std::vector<Saved> saved(at(units()));
    gather(0);
    gather(1);
    TensorId x = step("embedding", {gathered_[0]}, s_.hidden, {ActionKind::forward, 0, m});
    release(gathered_[0]);
    for (int u = 1; u < head; ++u) {
      gather(u + 1);
      x = layer(u, {ActionKind::forward, u, m}, x, saved[at(u)]);
      release(gathered_[at(u)]);
    }
    gather(head - 1);
    const TensorId logits =
        step("head", {x, gathered_[at(head)]}, s_.vocabulary / 4, {ActionKind::forward, head, m});
    TensorId grad = whole_backward(head, m, {x, logits, gathered_[at(head)]});
    release(gathered_[at(head)]);
    for (int u = head - 1; u > 0; --u) {
      gather(u - 1);
      const TensorId input = saved[at(u)].input;
      if (s_.recompute) layer(u, {ActionKind::recompute, u, m}, input, saved[at(u)]);
      grad = layer_backward(u, m, saved[at(u)], grad);
      release(gathered_[at(u)]);
    }
    whole_backward(0, m, {grad, gathered_[0]});
  }

  TransformerShape s_;
  TensorId full_ = no_tensor;
  List shards_, sums_, gathered_, accumulated_;
};

}  // namespace ztrain::test
