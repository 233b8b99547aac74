#include "kernels/reward/reward_tokens.hpp"

#include "base/error.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

template <class T>
void require_shapes(const RewardInput<T>& in, std::int64_t values) {
  REQUIRE(in.h.cols == in.weight.count && in.token_weights.count == values && in.first_token >= 0 &&
              in.first_token + in.h.rows <= values,
          "reward tokens: h [{}, {}] from token {} on, a weight of {}, {} weights of tokens, {} values",
          in.h.rows, in.h.cols, in.first_token, in.weight.count, in.token_weights.count, values);
}

/// The value of one token.
template <class T>
struct TokenValue {
  const T *h, *weight;
  const float* token_weights;
  std::int64_t first, rows, width;
  double* nll;

  void operator()(std::int64_t token) const { by(SoleThread(), token); }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t token) const {
    const double scale = token_weights[token];
    const std::int64_t row = token - first;
    double part = 0;
    if (scale != 0 && row >= 0 && row < rows)
      for (std::int64_t i = threads.rank(); i < width; i += threads.size())
        part += static_cast<double>(load(h[row * width + i])) * static_cast<double>(load(weight[i]));
    part = threads.sum(part);
    if (threads.rank() == 0) nll[token] = -scale * part;
  }
};

/// Factors by which gradients of rows are multiples of the weight.
struct RowCoefficients {
  const float* token_weights;  ///< from the first row's on
  const double* dnll;
  const StepScalars* scalars;
  KOKKOS_INLINE_FUNCTION double of(std::int64_t row) const {
    return -static_cast<double>(token_weights[row]) * dnll[row] * scalars->loss_scale;
  }
};

template <class T>
struct InputGradient {
  RowCoefficients coefficients;
  const T* weight;
  T* dh;
  std::int64_t cols;

  template <class P>
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row, const P& piece) const {
    write(coefficients.of(row), piece.in(weight), piece.out(dh + row * cols), piece.n());
  }
  KOKKOS_INLINE_FUNCTION static void write(double c, const T* w, T* to, std::int64_t n) {
    if (c == 0)
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(acc_t<T>(0));
    else
      for (std::int64_t i = 0; i < n; ++i)
        to[i] = static_cast<T>(static_cast<acc_t<T>>(c * static_cast<double>(load(w[i]))));
  }
};

/// Adds rows up in their order.
template <class T, class G>
struct WeightGradient {
  RowCoefficients coefficients;
  const T* h;
  G* dweight;
  std::int64_t rows, cols;
  bool accumulates;

  template <class P>
  KOKKOS_INLINE_FUNCTION void operator()(const P& piece) const {
    double sums[on_gpu ? pack_of<T, G> : quantum];
    const std::int64_t n = piece.n();
    for (std::int64_t i = 0; i < n; ++i) sums[i] = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      if (const double c = coefficients.of(row); c != 0) add(c, piece.in(h + row * cols), sums, n);
    if (accumulates)
      write(sums, piece.both(dweight), true, n);
    else
      write(sums, piece.out(dweight), false, n);
  }
  KOKKOS_INLINE_FUNCTION static void add(double c, const T* row, double* sums, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) sums[i] += c * static_cast<double>(load(row[i]));
  }
  KOKKOS_INLINE_FUNCTION static void write(const double* sums, G* to, bool adds, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double before = adds ? static_cast<double>(load(to[i])) : 0.0;
      to[i] = static_cast<G>(static_cast<acc_t<G>>(before + sums[i]));
    }
  }
};

}  // namespace

template <class T>
void reward_tokens(Exec& exec, const RewardInput<T>& in, Vector<double> nll) {
  require_shapes(in, nll.count);
  for_shared_rows(exec, nll.count, 128,
                  TokenValue<T>{in.h.data, in.weight.data, in.token_weights.data, in.first_token, in.h.rows,
                                in.h.cols, nll.data});
}

template <class T, class G>
void reward_tokens_backward(Exec& exec, const RewardInput<T>& in, Vector<const double> dnll,
                            const StepScalars* scalars, Matrix<T> dh, Vector<G> dweight, bool accumulates) {
  require_shapes(in, dnll.count);
  REQUIRE(dh.rows == in.h.rows && dh.cols == in.h.cols && (dweight.count == 0 || dweight.count == in.h.cols),
          "reward tokens backward: h [{}, {}], dh [{}, {}], a weight's gradient of {}", in.h.rows, in.h.cols,
          dh.rows, dh.cols, dweight.count);
  const RowCoefficients coefficients{in.token_weights.data + in.first_token, dnll.data + in.first_token,
                                     scalars};
  for_row_pieces<pack_of<T>>(exec, dh.rows, dh.cols,
                             InputGradient<T>{coefficients, in.weight.data, dh.data, dh.cols});
  if (dweight.count > 0)
    for_pieces<pack_of<T, G>>(
        exec, dweight.count,
        WeightGradient<T, G>{coefficients, in.h.data, dweight.data, in.h.rows, in.h.cols, accumulates});
}

ZTRAIN_INSTANCES(reward_tokens)
ZTRAIN_GRADIENT_INSTANCES(reward_tokens_backward)

}  // namespace ztrain::kernels
