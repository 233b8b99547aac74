#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/head_split.hpp"

namespace ztrain::engine {
namespace {

template <class T>
kernels::HeadLossInput<T> head_input(const Binding& b) {
  return {in_matrix<T>(b, 0), in_matrix<T>(b, 1), in_vector<std::int32_t>(b, 2), in_vector<float>(b, 3)};
}

kernels::HeadLossShape head_shape(const Binding& b) {
  return {b.in(0).shape[0], b.in(1).shape[0], b.in(1).shape[1]};
}

}  // namespace

Bound bind_head_loss(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto input = head_input<T>(b);
    const auto loss = out_vector<double>(b, 0);
    const auto workspace = out_vector<std::byte>(b, 1);
    const auto head = std::make_shared<kernels::HeadLoss<T>>(head_shape(b));
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, input, loss, workspace] { head->run(exec, input, loss, workspace); },
            nullptr, product_notes(b, head->product())};
  });
}

Bound bind_head_loss_grad(const Binding& b) {
  // A frozen weight has no gradient.
  using enum kernels::WeightGradient;
  const bool weight_grad = b.op.outputs.size() > 3;
  const auto weight_gradient = !weight_grad ? none : accumulates(b) ? add : write;
  const DType gradient = weight_grad ? b.out(3).dtype : b.in(0).dtype;
  return with_gradient_types(b.in(0).dtype, gradient, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const auto input = head_input<T>(b);
    const auto* scalars = b.input<StepScalars>(4);
    const auto loss = out_vector<double>(b, 0);
    const auto dh = out_matrix<T>(b, 1);
    const auto dw = weight_grad ? out_matrix<G>(b, 3) : Matrix<G>{};
    const auto workspace = out_vector<std::byte>(b, 2);
    auto head = std::make_shared<kernels::HeadLossGrad<T, G>>(head_shape(b), weight_gradient);
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, input, scalars, loss, dh, dw, workspace] {
              head->run(exec, input, scalars, loss, dh, dw, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

namespace {

/// Of an op that works on a chunk of the tokens: that chunk of operands of all tokens.
struct ChunkOf {
  std::int64_t begin, rows;
  explicit ChunkOf(const Binding& b)
      : begin(b.op.attributes.integer("begin")), rows(b.op.attributes.integer("rows")) {}

  template <class T>
  Matrix<T> of(const Matrix<T>& all) const {
    return {all.data + begin * all.cols, rows, all.cols};
  }
  template <class T>
  Vector<T> of(const Vector<T>& all) const {
    return {all.data + begin, rows};
  }
};

kernels::HeadChunkShape chunk_shape(const Binding& b, std::size_t weight) {
  return {
      ChunkOf(b).rows, b.in(weight).shape[1], {b.op.attributes.integer("first_word"), b.in(weight).shape[0]}};
}

/// sums: the operand with the sums of all members; targets and weights follow at `targets`.
kernels::ChunkTokens chunk_tokens(const Binding& b, std::size_t sums, std::size_t targets) {
  const ChunkOf chunk(b);
  return {{b.input<kernels::LogitSums>(sums), b.in(sums).shape[0]},
          chunk.of(in_vector<std::int32_t>(b, targets)),
          chunk.of(in_vector<float>(b, targets + 1))};
}

}  // namespace

Bound bind_head_logits(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const ChunkOf chunk(b);
    const auto h = chunk.of(in_matrix<T>(b, 0));
    const auto weight = in_matrix<T>(b, 1);
    const auto targets = chunk.of(in_vector<std::int32_t>(b, 2));
    const auto logits = out_matrix<acc_t<T>>(b, 0);
    const Vector<kernels::LogitSums> sums{b.output<kernels::LogitSums>(1), b.out(1).shape[0]};
    const auto workspace = out_vector<std::byte>(b, 2);
    const auto head = std::make_shared<kernels::HeadLogits<T>>(chunk_shape(b, 1));
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, h, weight, targets, logits, sums, workspace] {
              head->run(exec, h, weight, targets, logits, sums, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

Bound bind_head_split_loss(const Binding& b) {
  return {
      [&exec = b.exec, tokens = chunk_tokens(b, 0, 1), add = accumulates(b), nll = out_vector<double>(b, 1),
       loss = out_vector<double>(b, 0)] { kernels::head_split_loss(exec, tokens, add, nll, loss); },
      nullptr};
}

Bound bind_head_logits_grad(const Binding& b) {
  using enum kernels::WeightGradient;
  const bool weight_grad = b.op.outputs.size() > 3;
  const auto weight_gradient = !weight_grad ? none : accumulates(b) ? add : write;
  const DType type = b.in(2).dtype, gradient = weight_grad ? b.out(3).dtype : type;
  return with_gradient_types(type, gradient, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const ChunkOf chunk(b);
    const auto logits = out_matrix<acc_t<T>>(b, 2);
    const auto h = chunk.of(in_matrix<T>(b, 2));
    const auto weight = in_matrix<T>(b, 3);
    const auto dh = chunk.of(out_matrix<T>(b, 0));
    const auto dw = weight_grad ? out_matrix<G>(b, 3) : Matrix<G>{};
    auto head = std::make_shared<kernels::HeadLogitsGrad<T, G>>(chunk_shape(b, 3), weight_gradient);
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, logits, tokens = chunk_tokens(b, 1, 4), h, weight,
             scalars = b.input<StepScalars>(6), dh, dw, workspace = out_vector<std::byte>(b, 1)] {
              head->run(exec, logits, tokens, h, weight, scalars, dh, dw, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

}  // namespace ztrain::engine
