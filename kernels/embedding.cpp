#include "kernels/embedding.hpp"

#include <cstring>

#include "base/error.hpp"
#include "kernels/bytes.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

template <class T, class G>
KOKKOS_INLINE_FUNCTION void add_row(const T* __restrict dx, G* __restrict dw, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dw[i] = static_cast<G>(load(dw[i]) + static_cast<acc_t<G>>(load(dx[i])));
  }
}

}  // namespace

template <class T>
void embedding_forward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> W, Matrix<T> x) {
  REQUIRE(x.rows == tokens.count && x.cols == W.cols,
          "embedding: {} tokens and W [{}, {}], but x is [{}, {}]", tokens.count, W.rows, W.cols, x.rows,
          x.cols);
  const auto row_bytes = static_cast<std::size_t>(x.cols) * sizeof(T);
  for_rows(
      exec, x.rows, KOKKOS_LAMBDA(const std::int64_t row) {
        const std::int64_t token = tokens.data[row];
        T* const out = x.data + row * x.cols;
        if (token >= 0 && token < W.rows) {
          std::memcpy(out, W.data + token * W.cols, row_bytes);
        } else {
          std::memset(static_cast<void*>(out), 0xFF, row_bytes);
        }
      });
}

template <class T, class G>
void embedding_backward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> dx, Matrix<G> dW,
                        bool accumulate) {
  REQUIRE(dx.rows == tokens.count && dx.cols == dW.cols,
          "embedding backward: {} tokens and dW [{}, {}], but dx is [{}, {}]", tokens.count, dW.rows, dW.cols,
          dx.rows, dx.cols);
  if (!accumulate) zero(exec, dW.data, dW.rows * dW.cols * static_cast<std::int64_t>(sizeof(G)));
  // Two tokens may share a row but never a column block's order: each block walks all tokens.
  for_blocks(
      exec, dW.cols, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        for (std::int64_t row = 0; row < tokens.count; ++row) {
          const std::int64_t token = tokens.data[row];
          if (token < 0 || token >= dW.rows) continue;
          add_row<T, G>(dx.data + row * dx.cols + begin, dW.data + token * dW.cols + begin, n);
        }
      });
}

template void embedding_forward<float>(Exec&, Vector<const std::int32_t>, Matrix<const float>, Matrix<float>);
template void embedding_forward<bf16>(Exec&, Vector<const std::int32_t>, Matrix<const bf16>, Matrix<bf16>);
template void embedding_forward<f16>(Exec&, Vector<const std::int32_t>, Matrix<const f16>, Matrix<f16>);
template void embedding_forward<double>(Exec&, Vector<const std::int32_t>, Matrix<const double>,
                                        Matrix<double>);

#define ZTRAIN_BACKWARD(T, G) \
  template void embedding_backward<T, G>(Exec&, Vector<const std::int32_t>, Matrix<const T>, Matrix<G>, bool);
ZTRAIN_BACKWARD(float, float)
ZTRAIN_BACKWARD(bf16, float)
ZTRAIN_BACKWARD(bf16, bf16)
ZTRAIN_BACKWARD(f16, float)
ZTRAIN_BACKWARD(f16, f16)
ZTRAIN_BACKWARD(double, double)
#undef ZTRAIN_BACKWARD

}  // namespace ztrain::kernels
