#pragma once
// The head and its loss, over a whole vocabulary of V words or a rank's part of it.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// Constants of the loss of a token. The records of the head hand them on as a whole.
struct LogitCap {
  double soft_cap = 0;                     ///< as HeadLossShape::soft_cap
  double label_smoothing = 0, z_loss = 0;  ///< as LossTerms
  static constexpr auto fields() {
    return std::tuple{Unusual{"soft_cap", &LogitCap::soft_cap},
                      Unusual{"label_smoothing", &LogitCap::label_smoothing},
                      Unusual{"z_loss", &LogitCap::z_loss}};
  }
};
/// h [T, d], weight [V, d], targets [T], token_weights [T] -> loss fp64 [2], workspace.
struct HeadLoss : LogitCap {
  static constexpr std::string_view op = "head_loss";
  enum In : std::size_t { h, weight, targets, token_weights };
  enum Out : std::size_t { loss, workspace };
  static constexpr Count reads = 4, writes = 2;
};
/// h, weight, targets, token_weights -> nll fp64 [T], workspace: each token's loss, times its weight.
struct HeadTokens : LogitCap {
  static constexpr std::string_view op = "head_tokens";
  enum In : std::size_t { h, weight, targets, token_weights };
  enum Out : std::size_t { nll, workspace };
  static constexpr Count reads = 4, writes = 2;
};

}  // namespace ztrain
namespace ztrain::program {

/// h, weight, targets, token_weights, scalars -> loss fp64 [2], dh [T, d], workspace, (dweight [V, d]).
struct HeadLossGrad : LogitCap {
  static constexpr std::string_view op = "head_loss_grad";
  enum In : std::size_t { h, weight, targets, token_weights, scalars };
  enum Out : std::size_t { loss, dh, workspace, dweight };
  static constexpr Count reads{5, 6}, writes{3, 4};
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple_cat(LogitCap::fields(), std::tuple{Given{accumulate_key, &HeadLossGrad::accumulate}});
  }
};
/// A node: the operands of head_loss, of which the weight is this rank's part of the vocabulary.
struct HeadLossSplit : LogitCap {
  static constexpr std::string_view op = "head_loss_split";
  static constexpr Count reads = 4, writes{1, 2};
  std::int64_t first_word = 0, axes = 0;
  std::int64_t most_words = 0;  ///< that a rank has
  std::int64_t vocabulary = 0;  ///< words of all ranks, where labels are smoothed; else 0
  static constexpr auto fields() {
    return std::tuple_cat(LogitCap::fields(), std::tuple{Given{"first_word", &HeadLossSplit::first_word},
                                                         Given{"axes", &HeadLossSplit::axes},
                                                         Given{"most_words", &HeadLossSplit::most_words},
                                                         Unusual{"vocabulary", &HeadLossSplit::vocabulary}});
  }
};
/// A node: the operands of head_tokens, likewise.
struct HeadTokensSplit : HeadLossSplit {
  static constexpr std::string_view op = "head_tokens_split";
};
/// dnll fp64 [T], token_weights [T] -> coefficients [T], their product: the token weights of the loss whose
/// gradient with respect to logits is that of any function of nll.
struct HeadCoefficients : NoConstants {
  static constexpr std::string_view op = "head_coefficients";
  enum In : std::size_t { dnll, token_weights };
  enum Out : std::size_t { coefficients };
  static constexpr Count reads = 2, writes = 1;
};
/// Tokens [begin, begin + rows) of operands of all tokens, and words from first_word on.
struct HeadChunk : LogitCap {
  std::int64_t begin = 0, rows = 0, first_word = 0, vocabulary = 0;
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple_cat(
        LogitCap::fields(),
        std::tuple{Given{"begin", &HeadChunk::begin}, Given{"rows", &HeadChunk::rows},
                   Given{"first_word", &HeadChunk::first_word}, Unusual{"vocabulary", &HeadChunk::vocabulary},
                   Unusual{accumulate_key, &HeadChunk::accumulate}});
  }
};
/// h, weight, targets -> logits [rows, stride], sums fp64 [rows, 3], workspace.
struct HeadLogits : HeadChunk {
  static constexpr std::string_view op = "head_logits";
  enum In : std::size_t { h, weight, targets };
  enum Out : std::size_t { logits, sums, workspace };
  static constexpr Count reads = 3, writes = 3;
};
/// sums fp64 [n rows, 3], targets, token_weights -> loss fp64 [2], nll fp64 [rows].
struct HeadSplitLoss : HeadChunk {
  static constexpr std::string_view op = "head_split_loss";
  enum In : std::size_t { sums, targets, token_weights };
  enum Out : std::size_t { loss, nll };
  static constexpr Count reads{3, 4}, writes = 2;
};
/// sums fp64 [n rows, 3], targets, token_weights, (nll of the chunks before) -> nll fp64 [T].
struct HeadSplitTokens : HeadChunk {
  static constexpr std::string_view op = "head_split_tokens";
  enum In : std::size_t { sums, targets, token_weights };
  enum Out : std::size_t { nll };
  static constexpr Count reads{3, 4}, writes = 1;
};
/// logits, sums, h, weight, targets, token_weights, scalars, (dh of the chunks before) -> dh [T, d],
/// workspace, logits, which are none any more, (dweight).
struct HeadLogitsGrad : HeadChunk {
  static constexpr std::string_view op = "head_logits_grad";
  enum In : std::size_t { logits, sums, h, weight, targets, token_weights, scalars };
  enum Out : std::size_t { dh, workspace, spent, dweight };
  static constexpr Count reads{7, 9}, writes{3, 4};
};

}  // namespace ztrain::program
