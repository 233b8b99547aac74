#include <utility>

#include "engine/binders/dispatch.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/elementwise/arithmetic.hpp"
#include "kernels/elementwise/dropout.hpp"
#include "kernels/elementwise/swap_blocks.hpp"
#include "kernels/elementwise/swiglu.hpp"
#include "kernels/head/embedding.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "program/ops/conversion_records.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::engine {
namespace {

/// The rows of a norm are as wide as its weight: a row of x may hold several.
template <class T>
Matrix<T> norm_rows(Vector<T> x, std::int64_t width) {
  return {x.data, x.count / width, width};
}

/// The columns of a matrix that holds gate and up side by side.
template <class T>
std::pair<Columns<T>, Columns<T>> halves(Matrix<T> both) {
  const std::int64_t half = both.cols / 2;
  return {Columns<T>(both.data, both.rows, half, both.cols),
          Columns<T>(both.data + half, both.rows, half, both.cols)};
}

/// Of `count` operands: gate and up, or what holds both.
template <class T>
std::pair<Columns<const T>, Columns<const T>> gate_and_up_in(const Binding& b, std::size_t count) {
  if (count == 1) return halves(in_matrix<T>(b, Swiglu::gate));
  return {in_matrix<T>(b, Swiglu::gate), in_matrix<T>(b, Swiglu::up)};
}
template <class T>
std::pair<Columns<T>, Columns<T>> gate_and_up_out(const Binding& b, std::size_t count) {
  if (count == 1) return halves(out_matrix<T>(b, Swiglu::gate));
  return {out_matrix<T>(b, Swiglu::gate), out_matrix<T>(b, Swiglu::up)};
}

/// Of a table that is split over an axis.
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

Bound bind_rmsnorm(const Binding& b) {
  using Op = RmsNorm;
  return with_type(b.out(0).dtype, [&]<class T>() {
    const auto weight = in_vector<T>(b, Op::weight);
    return launch(b, kernels::rmsnorm_forward<T>, norm_rows(in_vector<T>(b, Op::x), weight.count), weight,
                  b.record<Op>().eps, norm_rows(out_vector<T>(b, Op::y), weight.count),
                  out_vector<acc_t<T>>(b, Op::rstd));
  });
}

Bound bind_add_rmsnorm(const Binding& b) {
  using Op = AddRmsNorm;
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::add_rmsnorm_forward<T>, in_matrix<T>(b, Op::x), in_matrix<T>(b, Op::addend),
                  in_vector<T>(b, Op::weight), b.record<Op>().eps, out_matrix<T>(b, Op::sum),
                  out_matrix<T>(b, Op::y), out_vector<acc_t<T>>(b, Op::rstd));
  });
}

Bound bind_rmsnorm_grad(const Binding& b) {
  using Op = RmsNormGrad;
  return with_gradient_types(b.out(Op::dx).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>() {
    const auto weight = in_vector<T>(b, Op::weight);
    const auto rows = [&](std::size_t i) { return norm_rows(in_vector<T>(b, i), weight.count); };
    return launch(b, kernels::rmsnorm_backward<T, G>, rows(Op::x), weight, in_vector<acc_t<T>>(b, Op::rstd),
                  rows(Op::dy), b.record<Op>().has_addend ? rows(Op::addend) : Matrix<const T>{},
                  norm_rows(out_vector<T>(b, Op::dx), weight.count), out_vector<G>(b, Op::dweight),
                  accumulates(b), b.output<std::byte>(Op::workspace));
  });
}

Bound bind_rope_table(const Binding& b) {
  using Op = RopeTable;
  const auto record = b.record<Op>();
  kernels::RopeScaling scaling;
  if (record.scaling == "llama3") {
    scaling.kind = kernels::RopeScaling::Kind::llama3;
    scaling.factor = record.factor;
    scaling.low_freq_factor = record.low_freq_factor;
    scaling.high_freq_factor = record.high_freq_factor;
    scaling.original_max_position = static_cast<double>(record.original_max_position);
  }
  const auto make = [&]<class A>() {
    return launch(b, kernels::rope_table<A>, in_vector<std::int32_t>(b, Op::positions), record.theta, scaling,
                  out_matrix<A>(b, Op::table));
  };
  return b.out(Op::table).dtype == DType::f64 ? make.operator()<double>() : make.operator()<float>();
}

Bound bind_rope(const Binding& b) {
  const auto record = b.record<Rope>();
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::rope_apply<T>, in_matrix<T>(b, Rope::x), in_matrix<acc_t<T>>(b, Rope::table),
                  record.inverse, out_matrix<T>(b, Rope::y), record.heads);
  });
}

Bound bind_swiglu(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    const auto [gate, up] = gate_and_up_in<T>(b, b.op.inputs.size());
    return launch(b, kernels::swiglu_forward<T>, gate, up, out_matrix<T>(b, Swiglu::y));
  });
}

Bound bind_swiglu_grad(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    const std::size_t last = SwigluGrad::dy(b.op.inputs.size());
    const auto [gate, up] = gate_and_up_in<T>(b, last);
    const auto [dgate, dup] = gate_and_up_out<T>(b, last);
    return launch(b, kernels::swiglu_backward<T>, gate, up, in_matrix<T>(b, last), dgate, dup);
  });
}

Bound bind_add(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::add<T>, in_vector<T>(b, Add::x), in_vector<T>(b, Add::addend),
                  out_vector<T>(b, Add::sum));
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

Bound bind_swap_blocks(const Binding& b) {
  using Op = program::SwapBlocks;
  const auto blocks = b.record<Op>();
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::swap_blocks<T>, in_vector<T>(b, Op::x), blocks.outer, blocks.inner,
                  out_vector<T>(b, Op::y));
  });
}

Bound bind_scale(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::scale<T>, in_vector<T>(b, Scale::x), b.record<Scale>().factor,
                  out_vector<T>(b, Scale::y));
  });
}

Bound bind_dropout(const Binding& b) {
  const auto record = b.record<Dropout>();
  const kernels::DropoutMask mask{record.rate, static_cast<std::uint64_t>(record.key), record.first_token,
                                  record.first_column, record.columns};
  return with_type(b.out(0).dtype, [&]<class T>() -> Bound {
    const auto x = in_matrix<T>(b, Dropout::x);
    const auto* scalars = b.input<StepScalars>(Dropout::scalars);
    const auto y = out_matrix<T>(b, Dropout::y);
    if (record.gap == 0) return launch(b, kernels::dropout<T>, x, mask, scalars, y);
    kernels::DropoutMask later = mask;
    later.first_token += record.gap_at + record.gap;
    return {[&exec = b.exec, x, mask, later, scalars, y, before = record.gap_at] {
      const std::int64_t behind = x.rows - before;
      kernels::dropout<T>(exec, rows_of(x, 0, before), mask, scalars, rows_of(y, 0, before));
      kernels::dropout<T>(exec, rows_of(x, before, behind), later, scalars, rows_of(y, before, behind));
    }};
  });
}

}  // namespace

std::span<const KernelRow> model_kernels() {
  static constexpr KernelRow rows[] = {
      {Embedding::op, bind_embedding},
      {EmbeddingGrad::op, bind_embedding_grad},
      {RmsNorm::op, bind_rmsnorm},
      {AddRmsNorm::op, bind_add_rmsnorm},
      {RmsNormGrad::op, bind_rmsnorm_grad},
      {RopeTable::op, bind_rope_table},
      {Rope::op, bind_rope},
      {Swiglu::op, bind_swiglu},
      {SwigluGrad::op, bind_swiglu_grad},
      {Add::op, bind_add},
      {Scale::op, bind_scale},
      {Dropout::op, bind_dropout},
      {SelectRow::op, bind_select_row},
      {program::SwapBlocks::op, bind_swap_blocks},
  };
  return rows;
}

}  // namespace ztrain::engine
