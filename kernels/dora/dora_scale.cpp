#include <algorithm>

#include "base/error.hpp"
#include "kernels/dora/dora.hpp"
#include "kernels/dora/inverse_norm.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// bias may be null.
template <class T>
struct ScaleArrays {
  const T *x, *magnitude, *bias;
  const acc_t<T>* squares;
  T* y;
  std::int64_t rows, cols;
};

/// y = x gain + bias.
template <class T>
void scale_row(const T* __restrict x, const acc_t<T>* __restrict gain, const acc_t<T>* __restrict bias,
               T* __restrict y, std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float values[wide_group];
      widen(x + begin, values, count);
      for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] * gain[begin + i] + bias[begin + i];
      narrow(values, y + begin, count);
    });
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(load(x[i]) * gain[i] + bias[i]);
  }
}

/// A quantum of columns of some rows by the one thread of a CPU, which makes the columns' gains once.
template <class T>
struct ScaleBlock {
  static constexpr std::int64_t rows_together = 32;

  ScaleArrays<T> a;
  std::int64_t per_row;  ///< quanta of a row

  void operator()(std::int64_t index) const {
    const std::int64_t column = index % per_row * quantum, n = std::min(quantum, a.cols - column),
                       first = index / per_row * rows_together;
    acc_t<T> gain[quantum], bias[quantum] = {};
    for (std::int64_t i = 0; i < n; ++i) {
      gain[i] = load(a.magnitude[column + i]) * inverse_norm<T>(a.squares[column + i]);
      if (a.bias != nullptr) bias[i] = load(a.bias[column + i]);
    }
    for (std::int64_t row = first; row < std::min(first + rows_together, a.rows); ++row)
      scale_row<T>(a.x + row * a.cols + column, gain, bias, a.y + row * a.cols + column, n);
  }
};

template <class T>
KOKKOS_INLINE_FUNCTION void scale_pack(const T* x, const T* magnitude, const acc_t<T>* squares, const T* bias,
                                       T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> scaled = load(x[i]) * (load(magnitude[i]) * inverse_norm<T>(squares[i]));
    y[i] = static_cast<T>(bias != nullptr ? scaled + load(bias[i]) : scaled);
  }
}

/// A pack of a row by a thread of a GPU.
template <class T, bool with_bias>
struct ScalePack {
  ScaleArrays<T> a;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row, const PieceOf<T>& p) const {
    const std::int64_t begin = row * a.cols;
    if constexpr (with_bias)
      scale_pack<T>(p.in(a.x + begin), p.in(a.magnitude), p.in(a.squares), p.in(a.bias), p.out(a.y + begin),
                    p.n());
    else
      scale_pack<T>(p.in(a.x + begin), p.in(a.magnitude), p.in(a.squares), nullptr, p.out(a.y + begin),
                    p.n());
  }
};

}  // namespace

template <class T>
void dora_scale(Exec& exec, Matrix<const T> x, Vector<const T> magnitude, Vector<const acc_t<T>> squares,
                Vector<const T> bias, Matrix<T> y) {
  REQUIRE(y.rows == x.rows && y.cols == x.cols && magnitude.count == x.cols && squares.count == x.cols &&
              (bias.data == nullptr || bias.count == x.cols),
          "dora_scale: x is [{}, {}], but y is [{}, {}], magnitude [{}], squares [{}], bias [{}]", x.rows,
          x.cols, y.rows, y.cols, magnitude.count, squares.count, bias.count);
  const ScaleArrays<T> a{x.data, magnitude.data, bias.data, squares.data, y.data, x.rows, x.cols};
  static_assert(carried<ScalePack<T, true>, ScaleBlock<T>>);
  if constexpr (!on_gpu) {
    const std::int64_t per_row = ceil_div(x.cols, quantum);
    for_rows(exec, per_row * ceil_div(x.rows, ScaleBlock<T>::rows_together), ScaleBlock<T>{a, per_row});
  } else if (bias.data != nullptr) {
    for_row_pieces<pack_of<T>>(exec, x.rows, x.cols, ScalePack<T, true>{a});
  } else {
    for_row_pieces<pack_of<T>>(exec, x.rows, x.cols, ScalePack<T, false>{a});
  }
}

ZTRAIN_INSTANCES(dora_scale)

}  // namespace ztrain::kernels
