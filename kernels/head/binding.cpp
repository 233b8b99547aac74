#include "engine/dispatch.hpp"
#include "kernels/distillation/record.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/head_split.hpp"
#include "kernels/head/record.hpp"

namespace ztrain::engine {
namespace {

template <class T>
kernels::HeadLossInput<T> head_input(const Binding& b) {
  using Op = HeadLoss;  // its gradient begins with the same operands
  return {in_matrix<T>(b, Op::h), in_matrix<T>(b, Op::weight), in_vector<std::int32_t>(b, Op::targets),
          in_vector<float>(b, Op::token_weights)};
}

kernels::LossTerms terms_of(const LogitCap& loss) {
  return {loss.label_smoothing, loss.z_loss};
}

template <class Record>
kernels::HeadLossShape head_shape(const Binding& b) {
  const Shape &h = b.in(HeadLoss::h).shape, &weight = b.in(HeadLoss::weight).shape;
  const auto loss = b.record<Record>();
  return {h[0], weight[0], weight[1], loss.soft_cap, terms_of(loss)};
}

// Of an op that gives the gradient of the weight; a frozen weight has none.

template <class Op>
bool is_frozen(const Binding& b) {
  return b.op.outputs.size() <= Op::dweight;
}
template <class Op>
kernels::WeightGradient weight_gradient(const Binding& b) {
  using enum kernels::WeightGradient;
  return is_frozen<Op>(b) ? none : accumulates(b) ? add : write;
}
template <class Op, class G>
Matrix<G> dweight_of(const Binding& b) {
  return is_frozen<Op>(b) ? Matrix<G>{} : out_matrix<G>(b, Op::dweight);
}
template <class Op, class F>
Bound with_head_types(const Binding& b, const F& f) {
  const DType type = b.in(Op::h).dtype;
  return with_gradient_types(type, is_frozen<Op>(b) ? type : b.out(Op::dweight).dtype, f);
}

Bound bind_head_loss(const Binding& b) {
  using Op = HeadLoss;
  return with_type(b.in(Op::h).dtype, [&]<class T>() {
    const auto head = std::make_shared<kernels::HeadLoss<T>>(b.exec, head_shape<Op>(b));
    return with_notes(launch(b, head, head_input<T>(b), out_vector<double>(b, Op::loss),
                             out_vector<std::byte>(b, Op::workspace)),
                      product_notes(b, head->product()));
  });
}

Bound bind_head_tokens(const Binding& b) {
  using Op = HeadTokens;
  return with_type(b.in(Op::h).dtype, [&]<class T>() -> Bound {
    const auto head = std::make_shared<kernels::HeadLoss<T>>(b.exec, head_shape<Op>(b));
    return with_notes({[&exec = b.exec, head, input = head_input<T>(b), nll = out_vector<double>(b, Op::nll),
                        workspace = out_vector<std::byte>(b, Op::workspace)] {
                        head->run_tokens(exec, input, nll, workspace);
                      }},
                      product_notes(b, head->product()));
  });
}

Bound bind_head_coefficients(const Binding& b) {
  using Op = program::HeadCoefficients;
  return launch(b, kernels::head_coefficients, in_vector<double>(b, Op::dnll),
                in_vector<float>(b, Op::token_weights), out_vector<float>(b, Op::coefficients));
}

Bound bind_head_loss_grad(const Binding& b) {
  using Op = program::HeadLossGrad;
  return with_head_types<Op>(b, [&]<class T, class G>() {
    const auto head =
        std::make_shared<kernels::HeadLossGrad<T, G>>(b.exec, head_shape<Op>(b), weight_gradient<Op>(b));
    return with_notes(
        launch(b, head, head_input<T>(b), b.input<StepScalars>(Op::scalars), out_vector<double>(b, Op::loss),
               out_matrix<T>(b, Op::dh), dweight_of<Op, G>(b), out_vector<std::byte>(b, Op::workspace)),
        product_notes(b, head->product()));
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
  return {chunk.rows,     weight[1],       {chunk.first_word, weight[0]},
          chunk.soft_cap, terms_of(chunk), chunk.vocabulary};
}

/// The sums of all members, and targets and weights of the chunk.
template <class Record>
kernels::ChunkTokens chunk_tokens(const Binding& b) {
  const auto record = b.record<Record>();
  const ChunkOf chunk(record);
  return {{b.input<kernels::LogitSums>(Record::sums), b.in(Record::sums).shape[0]},
          chunk.of(in_vector<std::int32_t>(b, Record::targets)),
          chunk.of(in_vector<float>(b, Record::token_weights)),
          terms_of(record)};
}

Bound bind_head_logits(const Binding& b) {
  using Op = program::HeadLogits;
  const auto record = b.record<Op>();
  return with_type(b.in(Op::h).dtype, [&]<class T>() {
    const ChunkOf chunk(record);
    const Vector<kernels::LogitSums> sums{b.output<kernels::LogitSums>(Op::sums), b.out(Op::sums).shape[0]};
    const auto head =
        std::make_shared<kernels::HeadLogits<T>>(b.exec, chunk_shape(record, b.in(Op::weight).shape));
    return with_notes(
        launch(b, head, chunk.of(in_matrix<T>(b, Op::h)), in_matrix<T>(b, Op::weight),
               chunk.of(in_vector<std::int32_t>(b, Op::targets)), out_matrix<acc_t<T>>(b, Op::logits), sums,
               out_vector<std::byte>(b, Op::workspace)),
        product_notes(b, head->product()));
  });
}

Bound bind_head_split_loss(const Binding& b) {
  using Op = program::HeadSplitLoss;
  return launch(b, kernels::head_split_loss, chunk_tokens<Op>(b), accumulates(b),
                out_vector<double>(b, Op::nll), out_vector<double>(b, Op::loss));
}

Bound bind_head_split_tokens(const Binding& b) {
  using Op = program::HeadSplitTokens;
  const ChunkOf chunk(b.record<Op>());
  return launch(b, kernels::head_split_tokens, chunk_tokens<Op>(b), chunk.of(out_vector<double>(b, Op::nll)));
}

/// The teacher of an op that has one.
template <class Op>
kernels::Lesson lesson_of(const Binding& b, const Op& record) {
  if constexpr (requires { Op::shares; }) {
    const ChunkOf chunk(record);
    return {chunk.of(in_matrix<std::int32_t>(b, Op::words)).data,
            chunk.of(in_matrix<float>(b, Op::shares)).data, in_matrix<float>(b, Op::shares).cols,
            record.share};
  } else {
    return {};
  }
}

template <class Op>
Bound bind_head_logits_grad(const Binding& b) {
  const auto record = b.record<Op>();
  return with_head_types<Op>(b, [&]<class T, class G>() {
    const ChunkOf chunk(record);
    const kernels::HeadChunkShape shape = chunk_shape(record, b.in(Op::weight).shape);
    kernels::ChunkTokens tokens = chunk_tokens<Op>(b);
    tokens.lesson = lesson_of(b, record);
    const auto head = std::make_shared<kernels::HeadLogitsGrad<T, G>>(b.exec, shape, weight_gradient<Op>(b));
    return with_notes(launch(b, head, out_matrix<acc_t<T>>(b, Op::spent), tokens,
                             chunk.of(in_matrix<T>(b, Op::h)), in_matrix<T>(b, Op::weight),
                             b.input<StepScalars>(Op::scalars), chunk.of(out_matrix<T>(b, Op::dh)),
                             dweight_of<Op, G>(b), out_vector<std::byte>(b, Op::workspace)),
                      product_notes(b, head->product()));
  });
}

}  // namespace

std::span<const KernelRow> head_kernels() {
  static constexpr KernelRow rows[] = {
      {HeadLoss::op, bind_head_loss, By::library},
      {HeadTokens::op, bind_head_tokens, By::library},
      {program::HeadCoefficients::op, bind_head_coefficients},
      {program::HeadLossGrad::op, bind_head_loss_grad, By::library},
      {program::HeadLogits::op, bind_head_logits, By::library},
      {program::HeadSplitLoss::op, bind_head_split_loss},
      {program::HeadSplitTokens::op, bind_head_split_tokens},
      {program::HeadLogitsGrad::op, bind_head_logits_grad<program::HeadLogitsGrad>, By::library},
      {program::DistillLogitsGrad::op, bind_head_logits_grad<program::DistillLogitsGrad>, By::library},
  };
  return rows;
}

}  // namespace ztrain::engine
