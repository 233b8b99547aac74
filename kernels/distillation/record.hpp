#pragma once
// A head whose loss is a share of the cross-entropy and a share of the divergence from a teacher (Hinton et
// al., "Distilling the knowledge in a neural network", 2015), and the head of a teacher, which tells the
// likeliest words. Both take tokens chunk by chunk, over a whole vocabulary or a rank's part of it.

#include <cstdint>
#include <string_view>

#include "kernels/head/record.hpp"

namespace ztrain {

/// A node: the operands of head_loss, words int32 [T, k], shares fp32 [T, k] -> loss fp64 [2], report fp64
/// [2]. The shares of a token are the teacher's probabilities of its words, which add up to 1; or all are 0,
/// and its loss is the cross-entropy. report: sums of the tokens' cross-entropy and divergence.
struct DistillLoss : program::HeadLossSplit {
  static constexpr std::string_view op = "distill_loss";
  enum In : std::size_t { h, weight, targets, token_weights, words, shares };
  enum Out : std::size_t { loss, report };
  static constexpr Count reads = 6, writes = 2;
  double share = 0;  ///< of the divergence in the loss
  static constexpr auto fields() {
    return std::tuple_cat(HeadLossSplit::fields(), std::tuple{Given{"share", &DistillLoss::share}});
  }
};
/// A node: the operands of head_loss -> loss fp64 [2], words int32 [T, k], log_likelihoods fp32 [T, k]: the
/// likeliest words of each token, the likeliest first, and the logarithms of their probabilities.
struct HeadLikelihoods : program::HeadLossSplit {
  static constexpr std::string_view op = "head_likelihoods";
  enum Out : std::size_t { loss, words, log_likelihoods };
  static constexpr Count reads = 4, writes = 3;
};

}  // namespace ztrain
namespace ztrain::program {

/// Constants of ops that read a rank's logits.
struct OwnWords : HeadChunk {
  std::int64_t own_words = 0;  ///< number of this rank's words
  static constexpr auto fields() {
    return std::tuple_cat(HeadChunk::fields(), std::tuple{Given{"own_words", &OwnWords::own_words}});
  }
};
/// logits [rows, stride], words [T, k], shares [T, k] -> sums fp64 [rows]: of the shares times the logits of
/// this rank's words.
struct TeacherSums : OwnWords {
  static constexpr std::string_view op = "teacher_sums";
  enum In : std::size_t { logits, words, shares };
  enum Out : std::size_t { sums };
  static constexpr Count reads = 3, writes = 1;
};
/// sums fp64 [n rows, 3] of head_logits, taught fp64 [n rows] of teacher_sums, targets, token_weights,
/// shares, (loss and report of the chunks before) -> loss fp64 [2], report fp64 [2], terms fp64 [rows, 3].
struct DistillTokens : HeadChunk {
  static constexpr std::string_view op = "distill_tokens";
  enum In : std::size_t { sums, taught, targets, token_weights, shares };
  enum Out : std::size_t { loss, report, terms };
  static constexpr Count reads{5, 7}, writes = 3;
  double share = 0;
  static constexpr auto fields() {
    return std::tuple_cat(HeadChunk::fields(), std::tuple{Given{"share", &DistillTokens::share}});
  }
};
/// The operands of head_logits_grad, words, shares, (dh of the chunks before), (dweight) -> those of
/// head_logits_grad.
struct DistillLogitsGrad : HeadChunk {
  static constexpr std::string_view op = "distill_logits_grad";
  enum In : std::size_t { logits, sums, h, weight, targets, token_weights, scalars, words, shares };
  enum Out : std::size_t { dh, workspace, spent, dweight };
  static constexpr Count reads{9, 11}, writes{3, 4};
  double share = 0;
  static constexpr auto fields() {
    return std::tuple_cat(HeadChunk::fields(), std::tuple{Given{"share", &DistillLogitsGrad::share}});
  }
};
/// logits [rows, stride], sums fp64 [n rows, 3] -> words int32 [rows, k], log_likelihoods fp32 [rows, k] of
/// this rank's likeliest words. Behind the last word of a rank with fewer than k stands -1, with -infinity.
struct LikeliestWords : OwnWords {
  static constexpr std::string_view op = "likeliest_words";
  enum In : std::size_t { logits, sums };
  enum Out : std::size_t { words, log_likelihoods };
  static constexpr Count reads = 2, writes = 2;
};
/// words [n rows, k], log_likelihoods [n rows, k] of all ranks, (both of the chunks before) -> words [T, k],
/// log_likelihoods [T, k].
struct JoinLikeliest : HeadChunk {
  static constexpr std::string_view op = "join_likeliest";
  enum In : std::size_t { parts, log_likelihoods_of_parts };
  enum Out : std::size_t { words, log_likelihoods };
  static constexpr Count reads{2, 4}, writes = 2;
};

}  // namespace ztrain::program
