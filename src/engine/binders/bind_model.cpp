#include <utility>

#include "engine/binders/dispatch.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/elementwise/add.hpp"
#include "kernels/elementwise/dropout.hpp"
#include "kernels/elementwise/scale.hpp"
#include "kernels/elementwise/select_row.hpp"
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
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto tokens = in_vector<std::int32_t>(b, Embedding::tokens);
    const auto weight = in_matrix<T>(b, Embedding::weight);
    const auto y = out_matrix<T>(b, Embedding::y);
    return {[&exec = b.exec, tokens, weight, y, rows = table_rows<Embedding>(b)] {
              kernels::embedding_forward<T>(exec, tokens, weight, y, rows);
            },
            nullptr};
  });
}

Bound bind_embedding_grad(const Binding& b) {
  using Op = EmbeddingGrad;
  return with_gradient_types(
      b.in(Op::dy).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
        const auto tokens = in_vector<std::int32_t>(b, Op::tokens);
        const auto dy = in_matrix<T>(b, Op::dy);
        const auto dweight = out_matrix<G>(b, Op::dweight);
        return {[&exec = b.exec, tokens, dy, dweight, add = accumulates(b), rows = table_rows<Op>(b)] {
                  kernels::embedding_backward<T, G>(exec, tokens, dy, dweight, add, rows);
                },
                nullptr};
      });
}

Bound bind_rmsnorm(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto weight = in_vector<T>(b, RmsNorm::weight);
    const auto x = norm_rows(in_vector<T>(b, RmsNorm::x), weight.count);
    const auto y = norm_rows(out_vector<T>(b, RmsNorm::y), weight.count);
    const auto rstd = out_vector<acc_t<T>>(b, RmsNorm::rstd);
    return {[&exec = b.exec, x, weight, y, rstd, eps = b.record<RmsNorm>().eps] {
              kernels::rmsnorm_forward<T>(exec, x, weight, eps, y, rstd);
            },
            nullptr};
  });
}

Bound bind_add_rmsnorm(const Binding& b) {
  using Op = AddRmsNorm;
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, Op::x);
    const auto addend = in_matrix<T>(b, Op::addend);
    const auto weight = in_vector<T>(b, Op::weight);
    const auto sum = out_matrix<T>(b, Op::sum);
    const auto y = out_matrix<T>(b, Op::y);
    const auto rstd = out_vector<acc_t<T>>(b, Op::rstd);
    return {[&exec = b.exec, x, addend, weight, sum, y, rstd, eps = b.record<Op>().eps] {
              kernels::add_rmsnorm_forward<T>(exec, x, addend, weight, eps, sum, y, rstd);
            },
            nullptr};
  });
}

Bound bind_rmsnorm_grad(const Binding& b) {
  using Op = RmsNormGrad;
  return with_gradient_types(
      b.out(Op::dx).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
        const auto weight = in_vector<T>(b, Op::weight);
        const auto rows = [&](std::size_t i) { return norm_rows(in_vector<T>(b, i), weight.count); };
        const auto x = rows(Op::x);
        const auto rstd = in_vector<acc_t<T>>(b, Op::rstd);
        const auto dy = rows(Op::dy);
        const auto addend = b.record<Op>().has_addend ? rows(Op::addend) : Matrix<const T>{};
        const auto dx = norm_rows(out_vector<T>(b, Op::dx), weight.count);
        const auto dweight = out_vector<G>(b, Op::dweight);
        void* workspace = b.output<std::byte>(Op::workspace);
        return {[&exec = b.exec, x, weight, rstd, dy, addend, dx, dweight, add = accumulates(b), workspace] {
                  kernels::rmsnorm_backward<T, G>(exec, x, weight, rstd, dy, addend, dx, dweight, add,
                                                  workspace);
                },
                nullptr};
      });
}

Bound bind_rope_table(const Binding& b) {
  const auto record = b.record<RopeTable>();
  kernels::RopeScaling scaling;
  if (record.scaling == "llama3") {
    scaling.kind = kernels::RopeScaling::Kind::llama3;
    scaling.factor = record.factor;
    scaling.low_freq_factor = record.low_freq_factor;
    scaling.high_freq_factor = record.high_freq_factor;
    scaling.original_max_position = static_cast<double>(record.original_max_position);
  }
  const auto make = [&]<class T>(Type<T>) -> Bound {
    return {[&exec = b.exec, positions = in_vector<std::int32_t>(b, RopeTable::positions),
             theta = record.theta, scaling, table = out_matrix<T>(b, RopeTable::table)] {
              kernels::rope_table<T>(exec, positions, theta, scaling, table);
            },
            nullptr};
  };
  return b.out(RopeTable::table).dtype == DType::f64 ? make(Type<double>{}) : make(Type<float>{});
}

Bound bind_rope(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, Rope::x);
    const auto table = in_matrix<acc_t<T>>(b, Rope::table);
    const auto y = out_matrix<T>(b, Rope::y);
    return {[&exec = b.exec, x, table, y, record = b.record<Rope>()] {
              kernels::rope_apply<T>(exec, x, table, record.inverse, y, record.heads);
            },
            nullptr};
  });
}

Bound bind_swiglu(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto [gate, up] = gate_and_up_in<T>(b, b.op.inputs.size());
    const auto y = out_matrix<T>(b, Swiglu::y);
    return {[&exec = b.exec, gate, up, y] { kernels::swiglu_forward<T>(exec, gate, up, y); }, nullptr};
  });
}

Bound bind_swiglu_grad(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const std::size_t last = SwigluGrad::dy(b.op.inputs.size());
    const auto [gate, up] = gate_and_up_in<T>(b, last);
    const auto dy = in_matrix<T>(b, last);
    const auto [dgate, dup] = gate_and_up_out<T>(b, last);
    return {[&exec = b.exec, gate, up, dy, dgate, dup] {
              kernels::swiglu_backward<T>(exec, gate, up, dy, dgate, dup);
            },
            nullptr};
  });
}

Bound bind_add(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, Add::x);
    const auto addend = in_vector<T>(b, Add::addend);
    const auto sum = out_vector<T>(b, Add::sum);
    return {[&exec = b.exec, x, addend, sum] { kernels::add<T>(exec, x, addend, sum); }, nullptr};
  });
}

Bound bind_select_row(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, SelectRow::x);
    const auto index = in_vector<std::int32_t>(b, SelectRow::index);
    const auto y = out_matrix<T>(b, SelectRow::y);
    return {[&exec = b.exec, x, index, y] { kernels::select_row<T>(exec, x, index, y); }, nullptr};
  });
}

Bound bind_swap_blocks(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, program::SwapBlocks::x);
    const auto y = out_vector<T>(b, program::SwapBlocks::y);
    return {[&exec = b.exec, x, blocks = b.record<program::SwapBlocks>(), y] {
              kernels::swap_blocks<T>(exec, x, blocks.outer, blocks.inner, y);
            },
            nullptr};
  });
}

Bound bind_scale(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, Scale::x);
    const auto y = out_vector<T>(b, Scale::y);
    return {
        [&exec = b.exec, x, y, factor = b.record<Scale>().factor] { kernels::scale<T>(exec, x, factor, y); },
        nullptr};
  });
}

Bound bind_dropout(const Binding& b) {
  const auto record = b.record<Dropout>();
  const kernels::DropoutMask mask{record.rate, static_cast<std::uint64_t>(record.key), record.first_token,
                                  record.first_column, record.columns};
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, Dropout::x);
    const auto* scalars = b.input<StepScalars>(Dropout::scalars);
    const auto y = out_matrix<T>(b, Dropout::y);
    if (record.gap == 0)
      return {[&exec = b.exec, x, mask, scalars, y] { kernels::dropout<T>(exec, x, mask, scalars, y); },
              nullptr};
    kernels::DropoutMask later = mask;
    later.first_token += record.gap_at + record.gap;
    return {[&exec = b.exec, x, mask, later, scalars, y, before = record.gap_at] {
              const std::int64_t behind = x.rows - before;
              kernels::dropout<T>(exec, rows_of(x, 0, before), mask, scalars, rows_of(y, 0, before));
              kernels::dropout<T>(exec, rows_of(x, before, behind), later, scalars,
                                  rows_of(y, before, behind));
            },
            nullptr};
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
