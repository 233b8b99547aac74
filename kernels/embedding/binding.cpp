#include "engine/dispatch.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/embedding/record.hpp"

namespace ztrain::engine {
namespace {

/// Returns the rows of a table that is split over an axis.
template <class Record>
kernels::TableRows table_rows(const Binding& b) {
  const auto record = b.record<Record>();
  return {record.first_row, record.rows};
}

Bound bind_embedding(const Binding& b) {
  using Op = Embedding;
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::embedding_forward<T>, in_vector<std::int32_t>(b, Op::tokens),
                  in_matrix<T>(b, Op::weight), out_matrix<T>(b, Op::y), table_rows<Op>(b));
  });
}

Bound bind_embedding_grad(const Binding& b) {
  using Op = EmbeddingGrad;
  return with_gradient_types(b.in(Op::dy).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>() {
    return launch(b, kernels::embedding_backward<T, G>, in_vector<std::int32_t>(b, Op::tokens),
                  in_matrix<T>(b, Op::dy), out_matrix<G>(b, Op::dweight), accumulates(b), table_rows<Op>(b));
  });
}

/// A selection is an embedding of one token.
Bound bind_select_row(const Binding& b) {
  using Op = SelectRow;
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::embedding_forward<T>, in_vector<std::int32_t>(b, Op::index),
                  in_matrix<T>(b, Op::x), out_matrix<T>(b, Op::y), kernels::TableRows{});
  });
}

}  // namespace

std::span<const KernelRow> embedding_kernels() {
  static constexpr KernelRow rows[] = {
      {Embedding::op, bind_embedding},
      {EmbeddingGrad::op, bind_embedding_grad},
      {SelectRow::op, bind_select_row},
  };
  return rows;
}

}  // namespace ztrain::engine
