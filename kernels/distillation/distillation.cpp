#include "kernels/distillation/distillation.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/distillation/likeliest_row.hpp"
#include "kernels/head/joined_sums.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {
namespace {

/// Writes the terms of a token.
struct TermsOfToken {
  JoinedSums joined;
  const double* taught;
  const float* weights;
  Lesson lesson;
  double* terms;

  ZTRAIN_FUNCTION void operator()(std::int64_t i) const {
    double* const to = terms + i * distilled_terms;
    if (weights[i] == 0) {
      for (int t = 0; t < distilled_terms; ++t) to[t] = 0;
      return;
    }
    const LogitSums all = joined.of(i);
    const double log_of_sum = std::log(all.sum), entropy = log_of_sum + (all.maximum - all.chosen);
    double shares = 0, divergence = 0;
    for (std::int64_t w = 0; w < lesson.words; ++w) {
      const double share = static_cast<double>(lesson.shares[i * lesson.words + w]);
      shares += share;
      if (share > 0) divergence += share * std::log(share);
    }
    divergence += shares * (log_of_sum + all.maximum);
    for (std::int64_t m = 0; m < joined.members; ++m) divergence -= taught[m * joined.tokens + i];
    to[0] = weights[i] * ((1 - lesson.share * shares) * entropy + lesson.share * divergence);
    to[1] = weights[i] * entropy;
    to[2] = weights[i] * divergence;
  }
};

/// Adds up one of the terms of all tokens, or, behind them, the weights.
struct AddTermsOfTokens {
  const double* terms;
  const float* weights;
  std::int64_t tokens;
  bool add;
  double *loss, *report;

  void operator()(std::int64_t term) const { by(SoleThread(), term); }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t term) const {
    double part = 0;
    for (std::int64_t i = threads.rank(); i < tokens; i += threads.size())
      part += term < distilled_terms ? terms[i * distilled_terms + term] : static_cast<double>(weights[i]);
    part = threads.sum(part);
    if (threads.rank() > 0) return;
    double* const to = term == 0 ? loss : term == distilled_terms ? loss + 1 : report + (term - 1);
    *to = add ? *to + part : part;
  }
};

void require_tokens(std::int64_t tokens, std::int64_t others, const char* what) {
  ASSERT(tokens == others, "distillation: {} {} for {} tokens", others, what, tokens);
}

}  // namespace

template <class A>
void teacher_sums(Exec& exec, Matrix<const A> logits, const Words& own, const Lesson& lesson,
                  Vector<double> sums) {
  require_tokens(sums.count, logits.rows, "rows of logits");
  for_rows(
      exec, sums.count, KOKKOS_LAMBDA(const std::int64_t i) {
        double sum = 0;
        for (std::int64_t w = 0; w < lesson.words; ++w) {
          const std::int64_t word = lesson.of_tokens[i * lesson.words + w] - own.first;
          const double share = static_cast<double>(lesson.shares[i * lesson.words + w]);
          if (share > 0 && word >= 0 && word < own.count)
            sum += share * static_cast<double>(logits.data[i * logits.cols + word]);
        }
        sums.data[i] = sum;
      });
}

void distill_tokens(Exec& exec, const ChunkTokens& tokens, Vector<const double> taught,
                    const DistilledTokens& results) {
  const std::int64_t rows = tokens.weights.count;
  require_tokens(rows * distilled_terms, results.terms.count, "terms");
  require_tokens(tokens.sums.count, taught.count, "sums of teachers");
  for_rows(exec, rows,
           TermsOfToken{{tokens.sums.data, tokens.sums.count / rows, rows, {}},
                        taught.data,
                        tokens.weights.data,
                        tokens.lesson,
                        results.terms.data});
  for_shared_rows(exec, distilled_terms + 1, 256,
                  AddTermsOfTokens{results.terms.data, tokens.weights.data, rows, results.add,
                                   results.loss.data, results.report.data});
}

template <class A>
void likeliest_words(Exec& exec, Matrix<const A> logits, const Words& own, Vector<const LogitSums> sums,
                     const Likeliest<std::int32_t, float>& to) {
  require_tokens(to.tokens, logits.rows, "rows of logits");
  const LikeliestRow<A> row{
      {sums.data, sums.count / to.tokens, to.tokens, {}}, logits.data, logits.cols, own, to};
  for_shared_rows(exec, to.tokens, threads_for(own.count, 4), row);
}

void join_likeliest(Exec& exec, const Likeliest<const std::int32_t, const float>& parts,
                    const Likeliest<std::int32_t, float>& to) {
  require_tokens(to.tokens * (parts.tokens / to.tokens), parts.tokens, "rows of parts");
  for_shared_rows(exec, to.tokens, 32, JoinedRow{parts, to});
}

template void teacher_sums<float>(Exec&, Matrix<const float>, const Words&, const Lesson&, Vector<double>);
template void teacher_sums<double>(Exec&, Matrix<const double>, const Words&, const Lesson&, Vector<double>);
template void likeliest_words<float>(Exec&, Matrix<const float>, const Words&, Vector<const LogitSums>,
                                     const Likeliest<std::int32_t, float>&);
template void likeliest_words<double>(Exec&, Matrix<const double>, const Words&, Vector<const LogitSums>,
                                      const Likeliest<std::int32_t, float>&);

}  // namespace ztrain::kernels
