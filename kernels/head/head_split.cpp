#include "kernels/head/head_split.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/head/head_loss_row.hpp"
#include "kernels/head/joined_sums.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {
namespace {

/// The sums of one row.
template <class A>
struct SumRow {
  A* logits;
  std::int64_t stride, words, first;
  const std::int32_t* targets;
  LogitSums* sums;
  A cap;
  double smoothing;
  std::int64_t vocabulary;

  ZTRAIN_FUNCTION double chosen(std::int64_t i) const {
    const std::int64_t word = targets[i] - first;
    return word >= 0 && word < words ? static_cast<double>(logits[i * stride + word]) : not_chosen;
  }
  /// In every thread.
  template <class Threads>
  KOKKOS_INLINE_FUNCTION double smoothly_chosen(const Threads& threads, std::int64_t i) const {
    if (smoothing == 0) return chosen(i);
    double sum = 0;
    for (std::int64_t j = threads.rank(); j < words; j += threads.size())
      sum += static_cast<double>(logits[i * stride + j]);
    sum = threads.sum(sum);
    if (targets[i] < 0 || targets[i] >= vocabulary) return std::numeric_limits<double>::quiet_NaN();
    const double own = chosen(i);
    return smoothing / static_cast<double>(vocabulary) * sum +
           (own == not_chosen ? 0 : (1 - smoothing) * own);
  }
  void operator()(std::int64_t i) const {
    A* const row = logits + i * stride;
    if (cap > 0) cap_logits(row, words, cap);
    std::fill_n(row + words, stride - words, std::numeric_limits<A>::lowest());
    const A maximum = row_maximum(row, stride);
    sums[i] = {static_cast<double>(maximum), row_sum<A, false>(row, stride, maximum),
               smoothly_chosen(SoleThread(), i)};
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t i) const {
    if (cap > 0) cap_logits(threads, logits + i * stride, words, cap);
    const std::int64_t step = threads.size() * pack;
    ExpSum<A> mine;
    for (std::int64_t at = threads.rank() * pack; at < words; at += step)
      mine.add(load_logits(logits + i * stride, at, words));
    const A maximum = threads.maximum(mine.maximum);
    const double sum = threads.sum(static_cast<double>(mine.sum * fast_exp(mine.maximum - maximum)));
    const double target = smoothly_chosen(threads, i);
    if (threads.rank() == 0) sums[i] = {static_cast<double>(maximum), sum, target};
  }
};

struct LossOfToken {
  JoinedSums joined;
  const float* weights;
  double* nll;
  ZTRAIN_FUNCTION void operator()(std::int64_t i) const {
    if (weights[i] == 0) {
      nll[i] = 0;
      return;
    }
    const LogitSums all = joined.of(i);
    if (joined.terms.z_loss == 0) {
      nll[i] = weights[i] * (std::log(all.sum) + (all.maximum - all.chosen));
      return;
    }
    const double log_sum = std::log(all.sum) + all.maximum;
    nll[i] = weights[i] * (log_sum - all.chosen + joined.terms.z_loss * log_sum * log_sum);
  }
};

/// scale * weight * (softmax - one_hot) of a row of capped logits, times the cap's slope; `to` may be the
/// logits' own bytes.
template <class T>
struct GradientRow {
  using A = acc_t<T>;
  A* logits;
  T* to;
  std::int64_t stride, words, first;
  JoinedSums joined;
  const std::int32_t* targets;
  const float* weights;
  const StepScalars* scalars;
  A cap;
  std::int64_t vocabulary;
  Lesson lesson;

  template <class Each>
  ZTRAIN_FUNCTION void write(std::int64_t i, const Each& each) const {
    const A* const row = logits + i * stride;
    T* const out = to + i * stride;
    if (weights[i] == 0) {
      each([&](std::int64_t j) { out[j] = T(0); });
      return;
    }
    const LogitSums all = joined.of(i);
    const double scaled = weights[i] * scalars->loss_scale;
    const bool known = all.chosen == all.chosen;
    if (!joined.terms.plain()) return write_terms(i, all, known, scaled, each);
    const A factor = known ? static_cast<A>(scaled / all.sum) : std::numeric_limits<A>::quiet_NaN();
    const A maximum = static_cast<A>(all.maximum);
    const std::int64_t word = targets[i] - first;
    const auto gradient = [&](std::int64_t j) {
      const A share = fast_exp(row[j] - maximum) * factor;
      return j == word ? share - static_cast<A>(scaled) : share;
    };
    if (cap > 0)
      each([&](std::int64_t j) { out[j] = static_cast<T>(gradient(j) * soft_cap_slope(row[j], cap)); });
    else
      each([&](std::int64_t j) { out[j] = static_cast<T>(gradient(j)); });
  }
  template <class Each>
  ZTRAIN_FUNCTION void write_terms(std::int64_t i, const LogitSums& all, bool known, double scaled,
                                   const Each& each) const {
    const GradientTerms g(joined.terms, scaled, all.sum, std::log(all.sum) + all.maximum, vocabulary);
    const A* const row = logits + i * stride;
    T* const out = to + i * stride;
    const A factor = known ? static_cast<A>(g.factor) : std::numeric_limits<A>::quiet_NaN(),
            maximum = static_cast<A>(all.maximum), uniform = static_cast<A>(g.uniform),
            one_hot = static_cast<A>(g.one_hot);
    const std::int64_t word = targets[i] - first;
    each([&](std::int64_t j) {
      const A share = fast_exp(row[j] - maximum) * factor - uniform;
      const A slope = cap > 0 ? soft_cap_slope(row[j], cap) : A(1);
      out[j] = static_cast<T>((j == word ? share - one_hot : share) * slope);
    });
  }
  /// Writes the gradient of a token that has a teacher. It is formed in the logits' bytes, whose type is
  /// wide.
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void learn(const Threads& threads, std::int64_t i) const {
    A* const row = logits + i * stride;
    T* const out = to + i * stride;
    const LogitSums all = joined.of(i);
    const double scaled = weights[i] * scalars->loss_scale;
    const A factor =
        all.chosen == all.chosen ? static_cast<A>(scaled / all.sum) : std::numeric_limits<A>::quiet_NaN();
    const A maximum = static_cast<A>(all.maximum);
    for (std::int64_t j = threads.rank(); j < words; j += threads.size())
      row[j] = weights[i] == 0 ? A(0) : fast_exp(row[j] - maximum) * factor;
    threads.sync();
    if (threads.rank() == 0 && weights[i] != 0) {
      const auto lower = [&](std::int64_t word, double by) {
        if (word >= first && word < first + words) row[word - first] -= static_cast<A>(by);
      };
      double shares = 0;
      for (std::int64_t w = 0; w < lesson.words; ++w) {
        const double share = lesson.share * static_cast<double>(lesson.shares[i * lesson.words + w]);
        shares += share;
        lower(lesson.of_tokens[i * lesson.words + w], scaled * share);
      }
      lower(targets[i], scaled * (1 - shares));
    }
    threads.sync();
    for (std::int64_t j = threads.rank(); j < words; j += threads.size()) out[j] = static_cast<T>(row[j]);
  }
  void operator()(std::int64_t i) const {
    if (lesson.words > 0) return learn(SoleThread(), i);
    write(i, [&](const auto& element) {
      for (std::int64_t j = 0; j < words; ++j) element(j);
    });
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t i) const {
    if (lesson.words > 0) return learn(threads, i);
    write(i, [&](const auto& element) {
      for (std::int64_t j = threads.rank(); j < words; j += threads.size()) element(j);
    });
  }
};

void require_chunk(const HeadChunkShape& s, std::int64_t rows, std::int64_t cols, const char* what) {
  ASSERT(rows == s.tokens && cols == s.width && s.words.count > 0, "split head: {} is [{}, {}], not [{}, {}]",
         what, rows, cols, s.tokens, s.width);
}

}  // namespace

template <class T>
HeadLogits<T>::HeadLogits(Exec& exec, const HeadChunkShape& shape)
    : shape_(shape),
      product_(make_gemm({.trans_b = true,
                          .m = shape.tokens,
                          .n = shape.words.count,
                          .k = shape.width,
                          .ldc = head_loss_stride(shape.words.count)},
                         dtype_of<T>(), dtype_of<acc_t<T>>())) {
  product_->prepare(exec);
}

template <class T>
void HeadLogits<T>::run(Exec& exec, Matrix<const T> h, Matrix<const T> weight,
                        Vector<const std::int32_t> targets, Matrix<acc_t<T>> logits, Vector<LogitSums> sums,
                        Vector<std::byte> workspace) {
  require_chunk(shape_, h.rows, h.cols, "h");
  product_->run(exec, h.data, weight.data, nullptr, logits.data, workspace.data);
  const SumRow<acc_t<T>> row{logits.data,
                             logits.cols,
                             shape_.words.count,
                             shape_.words.first,
                             targets.data,
                             sums.data,
                             static_cast<acc_t<T>>(shape_.soft_cap),
                             shape_.terms.label_smoothing,
                             shape_.vocabulary};
  for_shared_rows(exec, shape_.tokens, threads_for(shape_.words.count, 4), row);
}

void head_split_tokens(Exec& exec, const ChunkTokens& tokens, Vector<double> nll) {
  const std::int64_t rows = tokens.weights.count;
  for_rows(
      exec, rows,
      LossOfToken{
          {tokens.sums.data, tokens.sums.count / rows, rows, tokens.terms}, tokens.weights.data, nll.data});
}

void head_split_loss(Exec& exec, const ChunkTokens& tokens, bool add, Vector<double> nll,
                     Vector<double> loss) {
  head_split_tokens(exec, tokens, nll);
  add_losses(exec, {nll.data, tokens.weights.data, tokens.weights.count, !add, loss.data});
}

template <class T, class G>
HeadLogitsGrad<T, G>::HeadLogitsGrad(Exec& exec, const HeadChunkShape& s, WeightGradient weight_gradient)
    : shape_(s) {
  const std::int64_t stride = head_loss_stride(s.words.count);
  grad_h_ = make_gemm({.m = s.tokens, .n = s.width, .k = s.words.count, .lda = stride}, dtype_of<T>(),
                      dtype_of<T>());
  grad_h_->prepare(exec);
  if (weight_gradient == WeightGradient::none) return;
  grad_weight_ = make_gemm({.trans_a = true,
                            .m = s.words.count,
                            .n = s.width,
                            .k = s.tokens,
                            .lda = stride,
                            .accumulate = weight_gradient == WeightGradient::add},
                           dtype_of<T>(), dtype_of<G>());
  grad_weight_->prepare(exec);
}

template <class T, class G>
void HeadLogitsGrad<T, G>::run(Exec& exec, Matrix<acc_t<T>> logits, const ChunkTokens& tokens,
                               Matrix<const T> h, Matrix<const T> weight, const StepScalars* scalars,
                               Matrix<T> grad_h, Matrix<G> grad_weight, Vector<std::byte> workspace) {
  require_chunk(shape_, h.rows, h.cols, "h");
  require_chunk(shape_, grad_h.rows, grad_h.cols, "its gradient");
  // The logits' own bytes unless T is narrower: then behind what the products need.
  T* to = nullptr;
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    to = logits.data;
  } else {
    const std::int64_t products = head_split_products_bytes(shape_.tokens, shape_.words.count, shape_.width,
                                                            dtype_of<T>(), dtype_of<G>(), build_target());
    to = reinterpret_cast<T*>(workspace.data + products);
  }
  const GradientRow<T> row{logits.data,
                           to,
                           logits.cols,
                           shape_.words.count,
                           shape_.words.first,
                           {tokens.sums.data, tokens.sums.count / shape_.tokens, shape_.tokens, shape_.terms},
                           tokens.targets.data,
                           tokens.weights.data,
                           scalars,
                           static_cast<acc_t<T>>(shape_.soft_cap),
                           std::max<std::int64_t>(shape_.vocabulary, 1),
                           tokens.lesson};
  for_shared_rows(exec, shape_.tokens, threads_for(shape_.words.count, 4), row);
  grad_h_->run(exec, to, weight.data, nullptr, grad_h.data, workspace.data);
  if (grad_weight_) grad_weight_->run(exec, to, h.data, nullptr, grad_weight.data, workspace.data);
}

ZTRAIN_FOR_FLOATS(ZTRAIN_CLASS_INSTANCE, HeadLogits)
ZTRAIN_FOR_GRADIENTS(ZTRAIN_CLASS_INSTANCE, HeadLogitsGrad)

}  // namespace ztrain::kernels
