#pragma once
// Output head and cross-entropy, fused over chunks of tokens: the tokens x vocabulary logits never exist
// whole. The loss is a sum, not a mean: the caller divides by the global sum of weights.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/head/loss_terms.hpp"

namespace ztrain::kernels {

struct HeadLossShape {
  std::int64_t tokens = 0;
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  /// Logits become soft_cap * tanh(logit / soft_cap) (Gemma 2, 2024). 0: they stay as they are.
  double soft_cap = 0;
  LossTerms terms{};
};

/// A token of weight 0 is ignored and its target not looked at. A target outside the vocabulary under another
/// weight makes the loss NaN.
template <class T>
struct HeadLossInput {
  Matrix<const T> h;                   ///< [tokens, width]
  Matrix<const T> weight;              ///< [vocabulary, width]
  Vector<const std::int32_t> targets;  ///< [tokens]
  Vector<const float> token_weights;   ///< [tokens]
};

/// The prepared products of consecutive tokens [begin, begin + rows); chunks of equal size share them.
struct HeadLossChunk {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  std::shared_ptr<Gemm> logits;
  std::shared_ptr<Gemm> grad_h;
  std::shared_ptr<Gemm> grad_weight;
};

/// The first that is slow; else the logits'.
const Gemm& telling_product(const std::vector<HeadLossChunk>& chunks);

/// What becomes of the gradient of the head's weight: nothing (the weight is frozen), or it is written, or
/// added to what is there.
enum class WeightGradient : std::uint8_t { none, write, add };

/// Loss alone. T is float, bf16, f16 or double.
template <class T>
class HeadLoss {
 public:
  /// Prepares its products, as Gemm::prepare.
  HeadLoss(Exec& exec, const HeadLossShape& shape);

  /// The product to tell of.
  const Gemm& product() const { return telling_product(chunks_); }

  /// loss[0] = sum of token_weight * nll, loss[1] = sum of token_weight, both in fp64 and, on a CPU, in token
  /// order (overwritten). workspace: head_loss_workspace_bytes(), aligned to 64.
  void run(Exec& exec, const HeadLossInput<T>& input, Vector<double> loss, Vector<std::byte> workspace);

  /// Writes token_weight * nll of each token, in place of their sums. nll: [tokens].
  void run_tokens(Exec& exec, const HeadLossInput<T>& input, Vector<double> nll, Vector<std::byte> workspace);

 private:
  /// The sums, or the losses of tokens; the other one is null.
  struct Result {
    double *loss, *nll;
  };
  void run_chunks(Exec& exec, const HeadLossInput<T>& input, const Result& result,
                  Vector<std::byte> workspace);

  HeadLossShape shape_;
  std::vector<HeadLossChunk> chunks_;
};

/// coefficients[t] = dnll[t] * token_weights[t]: token weights of HeadLossGrad, whose gradients are then
/// those of the function of run_tokens' results that has the derivatives dnll.
void head_coefficients(Exec& exec, Vector<const double> dnll, Vector<const float> token_weights,
                       Vector<float> coefficients);

/// Loss and the gradients of loss_scale * loss[0]. G is the type of the weight's gradient: (T, G) is (float,
/// float), (bf16, float), (bf16, bf16), (f16, float), (f16, f16) or (double, double).
template <class T, class G>
class HeadLossGrad {
 public:
  HeadLossGrad(Exec& exec, const HeadLossShape& shape, WeightGradient weight_gradient);

  const Gemm& product() const { return telling_product(chunks_); }

  /// As HeadLoss::run; grad_h [tokens, width] is overwritten; grad_weight [vocabulary, width], not looked at
  /// where there is none. scalars: on the device, of which loss_scale is read; gradients of the logits are
  /// multiplied by it before they are rounded to T.
  void run(Exec& exec, const HeadLossInput<T>& input, const StepScalars* scalars, Vector<double> loss,
           Matrix<T> grad_h, Matrix<G> grad_weight, Vector<std::byte> workspace);

 private:
  HeadLossShape shape_;
  WeightGradient weight_gradient_;
  std::vector<HeadLossChunk> chunks_;
};

}  // namespace ztrain::kernels
