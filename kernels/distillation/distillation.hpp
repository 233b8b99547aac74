#pragma once
// The loss of tokens that have a teacher, and the likeliest words of tokens. Each works on a chunk of tokens
// and on the logits of a rank's words (kernels/head/head_split.hpp).
//
// A token with target t, logits z and words j to which the teacher gives the probabilities p_j has the
// cross-entropy CE = logsumexp(z) - z_t, the divergence KL = sum_j p_j (log p_j - z_j + logsumexp(z)) and the
// loss (1 - share s) CE + share KL, where s is the sum of p_j: 1, or 0 for a token without a teacher.

#include "kernels/head/head_split.hpp"

namespace ztrain::kernels {

/// Writes the sum of p_j z_j over this rank's words for each token. A: float or double. logits: capped, as of
/// HeadLogits.
template <class A>
void teacher_sums(Exec& exec, Matrix<const A> logits, const Words& own, const Lesson& lesson,
                  Vector<double> sums);

/// Results for the tokens of a chunk.
struct DistilledTokens {
  Vector<double> loss;    ///< [2], the sum of weight times loss, and the sum of weights
  Vector<double> report;  ///< [2], the sums of weight times CE and of weight times KL
  Vector<double> terms;   ///< [tokens, distilled_terms], overwritten
  bool add = false;       ///< whether loss and report are added to what is there
};

/// taught: sums of all members, [members, tokens]. tokens.lesson.of_tokens is not read.
void distill_tokens(Exec& exec, const ChunkTokens& tokens, Vector<const double> taught,
                    const DistilledTokens& results);

/// Words of tokens and the logarithms of their probabilities, [tokens, k] each.
template <class I, class F>
struct Likeliest {
  I* words = nullptr;
  F* logs = nullptr;
  std::int64_t tokens = 0, k = 0;
};

/// Writes the k likeliest of this rank's words, the likeliest first, of equal ones the one with the lowest
/// number; -1 and -infinity behind the last if the rank has fewer. sums: of all members.
template <class A>
void likeliest_words(Exec& exec, Matrix<const A> logits, const Words& own, Vector<const LogitSums> sums,
                     const Likeliest<std::int32_t, float>& to);

/// Writes the k likeliest words of what `members` ranks have found, one rank's tokens behind another's.
void join_likeliest(Exec& exec, const Likeliest<const std::int32_t, const float>& parts,
                    const Likeliest<std::int32_t, float>& to);

}  // namespace ztrain::kernels
