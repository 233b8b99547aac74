#include "engine/binders/dispatch.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/head_split.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::engine {
namespace {

template <class T>
kernels::HeadLossInput<T> head_input(const Binding& b) {
  using Op = HeadLoss;  // its gradient begins with the same operands
  return {in_matrix<T>(b, Op::h), in_matrix<T>(b, Op::weight), in_vector<std::int32_t>(b, Op::targets),
          in_vector<float>(b, Op::token_weights)};
}

kernels::HeadLossShape head_shape(const Binding& b) {
  const Shape &h = b.in(HeadLoss::h).shape, &weight = b.in(HeadLoss::weight).shape;
  return {h[0], weight[0], weight[1]};
}

Bound bind_head_loss(const Binding& b) {
  return with_type(b.in(HeadLoss::h).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto input = head_input<T>(b);
    const auto loss = out_vector<double>(b, HeadLoss::loss);
    const auto workspace = out_vector<std::byte>(b, HeadLoss::workspace);
    const auto head = std::make_shared<kernels::HeadLoss<T>>(head_shape(b));
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, input, loss, workspace] { head->run(exec, input, loss, workspace); },
            nullptr, product_notes(b, head->product())};
  });
}

Bound bind_head_loss_grad(const Binding& b) {
  // A frozen weight has no gradient.
  using enum kernels::WeightGradient;
  using Op = program::HeadLossGrad;
  const bool weight_grad = b.op.outputs.size() > Op::dweight;
  const auto weight_gradient = !weight_grad ? none : accumulates(b) ? add : write;
  const DType type = b.in(Op::h).dtype, gradient = weight_grad ? b.out(Op::dweight).dtype : type;
  return with_gradient_types(type, gradient, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const auto input = head_input<T>(b);
    const auto* scalars = b.input<StepScalars>(Op::scalars);
    const auto loss = out_vector<double>(b, Op::loss);
    const auto dh = out_matrix<T>(b, Op::dh);
    const auto dw = weight_grad ? out_matrix<G>(b, Op::dweight) : Matrix<G>{};
    const auto workspace = out_vector<std::byte>(b, Op::workspace);
    auto head = std::make_shared<kernels::HeadLossGrad<T, G>>(head_shape(b), weight_gradient);
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, input, scalars, loss, dh, dw, workspace] {
              head->run(exec, input, scalars, loss, dh, dw, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

/// Of an op that works on a chunk of the tokens: that chunk of operands of all tokens.
struct ChunkOf {
  std::int64_t begin, rows;
  explicit ChunkOf(const program::HeadChunk& chunk) : begin(chunk.begin), rows(chunk.rows) {}

  template <class T>
  Matrix<T> of(const Matrix<T>& all) const {
    return {all.data + begin * all.cols, rows, all.cols};
  }
  template <class T>
  Vector<T> of(const Vector<T>& all) const {
    return {all.data + begin, rows};
  }
};

kernels::HeadChunkShape chunk_shape(const program::HeadChunk& chunk, const Shape& weight) {
  return {chunk.rows, weight[1], {chunk.first_word, weight[0]}};
}

/// The sums of all members, and targets and weights of the chunk.
template <class Record>
kernels::ChunkTokens chunk_tokens(const Binding& b) {
  const ChunkOf chunk(b.record<Record>());
  return {{b.input<kernels::LogitSums>(Record::sums), b.in(Record::sums).shape[0]},
          chunk.of(in_vector<std::int32_t>(b, Record::targets)),
          chunk.of(in_vector<float>(b, Record::token_weights))};
}

Bound bind_head_logits(const Binding& b) {
  using Op = program::HeadLogits;
  const auto record = b.record<Op>();
  return with_type(b.in(Op::h).dtype, [&]<class T>(Type<T>) -> Bound {
    const ChunkOf chunk(record);
    const auto h = chunk.of(in_matrix<T>(b, Op::h));
    const auto weight = in_matrix<T>(b, Op::weight);
    const auto targets = chunk.of(in_vector<std::int32_t>(b, Op::targets));
    const auto logits = out_matrix<acc_t<T>>(b, Op::logits);
    const Vector<kernels::LogitSums> sums{b.output<kernels::LogitSums>(Op::sums), b.out(Op::sums).shape[0]};
    const auto workspace = out_vector<std::byte>(b, Op::workspace);
    const auto head = std::make_shared<kernels::HeadLogits<T>>(chunk_shape(record, b.in(Op::weight).shape));
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, h, weight, targets, logits, sums, workspace] {
              head->run(exec, h, weight, targets, logits, sums, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

Bound bind_head_split_loss(const Binding& b) {
  using Op = program::HeadSplitLoss;
  return {[&exec = b.exec, tokens = chunk_tokens<Op>(b), add = accumulates(b),
           nll = out_vector<double>(b, Op::nll), loss = out_vector<double>(b, Op::loss)] {
            kernels::head_split_loss(exec, tokens, add, nll, loss);
          },
          nullptr};
}

Bound bind_head_logits_grad(const Binding& b) {
  using enum kernels::WeightGradient;
  using Op = program::HeadLogitsGrad;
  const bool weight_grad = b.op.outputs.size() > Op::dweight;
  const auto weight_gradient = !weight_grad ? none : accumulates(b) ? add : write;
  const DType type = b.in(Op::h).dtype, gradient = weight_grad ? b.out(Op::dweight).dtype : type;
  const auto record = b.record<Op>();
  return with_gradient_types(type, gradient, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const ChunkOf chunk(record);
    const auto logits = out_matrix<acc_t<T>>(b, Op::spent);
    const auto h = chunk.of(in_matrix<T>(b, Op::h));
    const auto weight = in_matrix<T>(b, Op::weight);
    const auto dh = chunk.of(out_matrix<T>(b, Op::dh));
    const auto dw = weight_grad ? out_matrix<G>(b, Op::dweight) : Matrix<G>{};
    const kernels::HeadChunkShape shape = chunk_shape(record, b.in(Op::weight).shape);
    auto head = std::make_shared<kernels::HeadLogitsGrad<T, G>>(shape, weight_gradient);
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, logits, tokens = chunk_tokens<Op>(b), h, weight,
             scalars = b.input<StepScalars>(Op::scalars), dh, dw,
             workspace = out_vector<std::byte>(b, Op::workspace)] {
              head->run(exec, logits, tokens, h, weight, scalars, dh, dw, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

}  // namespace

std::span<const KernelRow> head_kernels() {
  static constexpr KernelRow rows[] = {
      {HeadLoss::op, bind_head_loss},
      {program::HeadLossGrad::op, bind_head_loss_grad},
      {program::HeadLogits::op, bind_head_logits},
      {program::HeadSplitLoss::op, bind_head_split_loss},
      {program::HeadLogitsGrad::op, bind_head_logits_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
