#pragma once
// Output head and cross-entropy over a vocabulary that is split among ranks: each has some rows of the
// weight, and of a token's logits those words alone. What ranks exchange is three numbers a token and rank,
// never logits ("vocabulary parallel cross-entropy" of Shoeybi et al., "Megatron-LM", 2019). The three steps
// of a chunk of tokens are functions of their own, since the exchange is between them.

#include <cstdint>
#include <memory>

#include "base/dtype.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/head/head_loss.hpp"

namespace ztrain::kernels {

/// This rank's words of the vocabulary: [first, first + count).
struct Words {
  std::int64_t first = 0, count = 0;
};

/// What a rank knows of a token, and what all need to know of it.
struct LogitSums {
  double maximum;  ///< of its logits
  double sum;      ///< of exp(logit - maximum)
  /// The target's logit where it is one of its words; else the lowest double. Where labels are smoothed, its
  /// part of the logits' mean under the smoothed labels instead, or NaN for a target that is no word.
  double chosen;
};
static_assert(sizeof(LogitSums) == logit_sums_width * sizeof(double));

/// A chunk of tokens. T is float, bf16, f16 or double.
struct HeadChunkShape {
  std::int64_t tokens = 0, width = 0;
  Words words;
  double soft_cap = 0;  ///< as HeadLossShape::soft_cap
  LossTerms terms{};
  std::int64_t vocabulary = 0;  ///< words of all members, where labels are smoothed
};

/// Logits of a chunk and their sums.
template <class T>
class HeadLogits {
 public:
  /// Prepares its products, as Gemm::prepare; so does HeadLogitsGrad.
  HeadLogits(Exec& exec, const HeadChunkShape& shape);
  const Gemm& product() const { return *product_; }

  /// h: [tokens, width]; weight: [words.count, width]; logits: [tokens, head_loss_stride(words.count)], of
  /// which the first words.count of a row are written, capped, and the rest is undefined; sums: [tokens].
  /// workspace: gemm_workspace_bytes(tokens, words.count, width, ...).
  void run(Exec& exec, Matrix<const T> h, Matrix<const T> weight, Vector<const std::int32_t> targets,
           Matrix<acc_t<T>> logits, Vector<LogitSums> sums, Vector<std::byte> workspace);

 private:
  HeadChunkShape shape_;
  std::shared_ptr<Gemm> product_;
};

/// A teacher's answer for a chunk's tokens: words [tokens, words], and the probabilities that it gives
/// them, whose sum is 1, or 0 for a token without a teacher.
struct Lesson {
  const std::int32_t* of_tokens = nullptr;
  const float* shares = nullptr;
  std::int64_t words = 0;  ///< of a token; 0: there is no teacher
  double share = 0;        ///< of the divergence from the teacher in the loss
};

/// What every member of the group knows of a chunk's tokens: sums [members, tokens] in the members' order.
struct ChunkTokens {
  Vector<const LogitSums> sums;
  Vector<const std::int32_t> targets;
  Vector<const float> weights;
  LossTerms terms{};
  Lesson lesson{};  ///< for gradients alone; its logits are not capped, and its loss has no terms
};

/// loss[0] (+)= sum of weight * nll, loss[1] (+)= sum of weights, in fp64; added to what is there where add
/// is set. nll: [tokens], overwritten. The same bits on every member. Rules for weights and targets are those
/// of HeadLossInput.
void head_split_loss(Exec& exec, const ChunkTokens& tokens, bool add, Vector<double> nll,
                     Vector<double> loss);

/// nll[t] = weight * nll of the tokens of a chunk. nll: [tokens]. The same bits on every member.
void head_split_tokens(Exec& exec, const ChunkTokens& tokens, Vector<double> nll);

/// The gradients of a chunk: of this rank's words for the weight, and this rank's part of the sum over ranks
/// for h.
template <class T, class G>
class HeadLogitsGrad {
 public:
  HeadLogitsGrad(Exec& exec, const HeadChunkShape& shape, WeightGradient weight_gradient);
  const Gemm& product() const { return *grad_h_; }

  /// logits: of HeadLogits, overwritten; gradients of the logits are multiplied by scalars->loss_scale before
  /// they are rounded to T. h: [tokens, width]; grad_h likewise. workspace: head_split_grad_bytes().
  void run(Exec& exec, Matrix<acc_t<T>> logits, const ChunkTokens& tokens, Matrix<const T> h,
           Matrix<const T> weight, const StepScalars* scalars, Matrix<T> grad_h, Matrix<G> grad_weight,
           Vector<std::byte> workspace);

 private:
  HeadChunkShape shape_;
  std::shared_ptr<Gemm> grad_h_, grad_weight_;
};

}  // namespace ztrain::kernels
