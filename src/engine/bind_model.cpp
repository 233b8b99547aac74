#include <utility>

#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
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
  if (count == 1) return halves(in_matrix<T>(b, 0));
  return {in_matrix<T>(b, 0), in_matrix<T>(b, 1)};
}
template <class T>
std::pair<Columns<T>, Columns<T>> gate_and_up_out(const Binding& b, std::size_t count) {
  if (count == 1) return halves(out_matrix<T>(b, 0));
  return {out_matrix<T>(b, 0), out_matrix<T>(b, 1)};
}

/// Of a table that is split over an axis.
kernels::TableRows table_rows(const Binding& b) {
  return {b.op.attributes.integer("first_row", 0), b.op.attributes.integer("rows", 0)};
}

}  // namespace

Bound bind_embedding(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto tokens = in_vector<std::int32_t>(b, 0);
    const auto weight = in_matrix<T>(b, 1);
    const auto x = out_matrix<T>(b, 0);
    return {[&exec = b.exec, tokens, weight, x, rows = table_rows(b)] {
              kernels::embedding_forward<T>(exec, tokens, weight, x, rows);
            },
            nullptr};
  });
}

Bound bind_embedding_grad(const Binding& b) {
  return with_gradient_types(b.in(1).dtype, b.out(0).dtype, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const auto tokens = in_vector<std::int32_t>(b, 0);
    const auto dx = in_matrix<T>(b, 1);
    const auto dw = out_matrix<G>(b, 0);
    return {[&exec = b.exec, tokens, dx, dw, add = accumulates(b), rows = table_rows(b)] {
              kernels::embedding_backward<T, G>(exec, tokens, dx, dw, add, rows);
            },
            nullptr};
  });
}

Bound bind_rmsnorm(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto weight = in_vector<T>(b, 1);
    const auto x = norm_rows(in_vector<T>(b, 0), weight.count);
    const auto y = norm_rows(out_vector<T>(b, 0), weight.count);
    const auto rstd = out_vector<acc_t<T>>(b, 1);
    return {[&exec = b.exec, x, weight, y, rstd, eps = b.op.attributes.number("eps")] {
              kernels::rmsnorm_forward<T>(exec, x, weight, eps, y, rstd);
            },
            nullptr};
  });
}

Bound bind_add_rmsnorm(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, 0);
    const auto addend = in_matrix<T>(b, 1);
    const auto weight = in_vector<T>(b, 2);
    const auto sum = out_matrix<T>(b, 0);
    const auto y = out_matrix<T>(b, 1);
    const auto rstd = out_vector<acc_t<T>>(b, 2);
    return {[&exec = b.exec, x, addend, weight, sum, y, rstd, eps = b.op.attributes.number("eps")] {
              kernels::add_rmsnorm_forward<T>(exec, x, addend, weight, eps, sum, y, rstd);
            },
            nullptr};
  });
}

Bound bind_rmsnorm_grad(const Binding& b) {
  return with_gradient_types(
      b.out(0).dtype, b.out(1).dtype, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
        const auto weight = in_vector<T>(b, 1);
        const auto x = norm_rows(in_vector<T>(b, 0), weight.count);
        const auto rstd = in_vector<acc_t<T>>(b, 2);
        const auto dy = norm_rows(in_vector<T>(b, 3), weight.count);
        const auto addend = b.op.attributes.integer("addend") ? norm_rows(in_vector<T>(b, 4), weight.count)
                                                              : Matrix<const T>{};
        const auto dx = norm_rows(out_vector<T>(b, 0), weight.count);
        const auto dw = out_vector<G>(b, 1);
        void* workspace = b.output<std::byte>(2);
        return {[&exec = b.exec, x, weight, rstd, dy, addend, dx, dw, add = accumulates(b), workspace] {
                  kernels::rmsnorm_backward<T, G>(exec, x, weight, rstd, dy, addend, dx, dw, add, workspace);
                },
                nullptr};
      });
}

Bound bind_rope_table(const Binding& b) {
  const Attributes& a = b.op.attributes;
  kernels::RopeScaling scaling;
  if (a.text("scaling") == "llama3") {
    scaling.kind = kernels::RopeScaling::Kind::llama3;
    scaling.factor = a.number("factor");
    scaling.low_freq_factor = a.number("low_freq_factor");
    scaling.high_freq_factor = a.number("high_freq_factor");
    scaling.original_max_position = static_cast<double>(a.integer("original_max_position"));
  }
  const auto positions = in_vector<std::int32_t>(b, 0);
  const double theta = a.number("theta");
  if (b.out(0).dtype == DType::f64)
    return {[&exec = b.exec, positions, theta, scaling, table = out_matrix<double>(b, 0)] {
              kernels::rope_table<double>(exec, positions, theta, scaling, table);
            },
            nullptr};
  return {[&exec = b.exec, positions, theta, scaling, table = out_matrix<float>(b, 0)] {
            kernels::rope_table<float>(exec, positions, theta, scaling, table);
          },
          nullptr};
}

Bound bind_rope(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, 0);
    const auto table = in_matrix<acc_t<T>>(b, 1);
    const auto y = out_matrix<T>(b, 0);
    const bool inverse = b.op.attributes.integer("inverse") != 0;
    return {[&exec = b.exec, x, table, inverse, y, heads = b.op.attributes.integer("heads", 0)] {
              kernels::rope_apply<T>(exec, x, table, inverse, y, heads);
            },
            nullptr};
  });
}

Bound bind_swiglu(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto [gate, up] = gate_and_up_in<T>(b, b.op.inputs.size());
    const auto y = out_matrix<T>(b, 0);
    return {[&exec = b.exec, gate, up, y] { kernels::swiglu_forward<T>(exec, gate, up, y); }, nullptr};
  });
}

Bound bind_swiglu_grad(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const std::size_t held_in = b.op.inputs.size() - 1;
    const auto [gate, up] = gate_and_up_in<T>(b, held_in);
    const auto dy = in_matrix<T>(b, held_in);
    const auto [dgate, dup] = gate_and_up_out<T>(b, held_in);
    return {[&exec = b.exec, gate, up, dy, dgate, dup] {
              kernels::swiglu_backward<T>(exec, gate, up, dy, dgate, dup);
            },
            nullptr};
  });
}

Bound bind_add(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, 0);
    const auto y = in_vector<T>(b, 1);
    const auto sum = out_vector<T>(b, 0);
    return {[&exec = b.exec, x, y, sum] { kernels::add<T>(exec, x, y, sum); }, nullptr};
  });
}

Bound bind_select_row(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, 0);
    const auto index = in_vector<std::int32_t>(b, 1);
    const auto y = out_matrix<T>(b, 0);
    return {[&exec = b.exec, x, index, y] { kernels::select_row<T>(exec, x, index, y); }, nullptr};
  });
}

Bound bind_swap_blocks(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, 0);
    const auto y = out_vector<T>(b, 0);
    return {
        [&exec = b.exec, x, outer = b.op.attributes.integer("outer"),
         inner = b.op.attributes.integer("inner"), y] { kernels::swap_blocks<T>(exec, x, outer, inner, y); },
        nullptr};
  });
}

Bound bind_scale(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_vector<T>(b, 0);
    const auto y = out_vector<T>(b, 0);
    return {[&exec = b.exec, x, y, factor = b.op.attributes.number("factor")] {
              kernels::scale<T>(exec, x, factor, y);
            },
            nullptr};
  });
}

Bound bind_dropout(const Binding& b) {
  const Attributes& a = b.op.attributes;
  const kernels::DropoutMask mask{a.number("rate"), static_cast<std::uint64_t>(a.integer("key")),
                                  a.integer("first_token")};
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto x = in_matrix<T>(b, 0);
    const auto* scalars = b.input<StepScalars>(1);
    const auto y = out_matrix<T>(b, 0);
    return {[&exec = b.exec, x, mask, scalars, y] { kernels::dropout<T>(exec, x, mask, scalars, y); },
            nullptr};
  });
}

}  // namespace ztrain::engine
