#include "kernels/head/head_loss.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/head/head_loss_row.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {
namespace {

/// The chunks' buffers inside the workspace.
template <class T>
struct Buffers {
  void* gemm;
  acc_t<T>* logits;  ///< [chunk, stride]
  T* grad_logits;    ///< [chunk, stride]: the logits' own bytes unless T is narrower
  double* nll;       ///< [chunk], times the token's weight
  std::int64_t stride;
};

template <class T>
Buffers<T> place(const HeadLossShape& shape, DType gradient, Vector<std::byte> workspace) {
  const auto needed = head_loss_workspace_bytes(shape.tokens, shape.vocabulary, shape.width, dtype_of<T>(),
                                                gradient, build_target());
  REQUIRE(workspace.count >= needed, "head loss: the workspace has {} bytes, {} are needed", workspace.count,
          needed);
  const std::int64_t chunk = head_loss_chunk(shape.tokens, shape.vocabulary, dtype_of<T>(), build_target());
  Buffers<T> b{};
  b.stride = head_loss_stride(shape.vocabulary);
  b.gemm = workspace.data;
  b.logits = reinterpret_cast<acc_t<T>*>(workspace.data + head_loss_gemm_bytes(shape.tokens, shape.vocabulary,
                                                                               shape.width, dtype_of<T>(),
                                                                               gradient, build_target()));
  acc_t<T>* end = b.logits + chunk * b.stride;
  if constexpr (sizeof(T) < sizeof(acc_t<T>)) {
    b.grad_logits = reinterpret_cast<T*>(end);
    b.nll = reinterpret_cast<double*>(b.grad_logits + chunk * b.stride);
  } else {
    b.grad_logits = b.logits;
    b.nll = reinterpret_cast<double*>(end);
  }
  return b;
}

/// The losses of a chunk's rows.
template <class T, bool grad>
struct ChunkRows {
  Buffers<T> buffers;
  std::int64_t vocabulary;
  acc_t<T> cap;
  LossTerms terms;
  const std::int32_t* targets;
  const float* weights;
  const StepScalars* scalars;

  KOKKOS_INLINE_FUNCTION LossRow<T> row(std::int64_t i) const {
    return {buffers.logits + i * buffers.stride,
            buffers.grad_logits + i * buffers.stride,
            vocabulary,
            targets[i],
            weights[i],
            grad ? scalars->loss_scale : 1,
            cap,
            terms};
  }
  void operator()(std::int64_t i) const { buffers.nll[i] = token_loss<T, grad>(row(i), buffers.stride); }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t i) const {
    const double nll = token_loss<T, grad>(threads, row(i));
    if (threads.rank() == 0) buffers.nll[i] = nll;
  }
};

template <class T, bool grad>
void chunk_loss(Exec& exec, const HeadLossShape& shape, const HeadLossInput<T>& input,
                const HeadLossChunk& chunk, const Buffers<T>& b, const StepScalars* scalars, double* loss) {
  const std::int64_t vocabulary = shape.vocabulary, rows = chunk.rows;
  const float* weights = input.token_weights.data + chunk.begin;
  const ChunkRows<T, grad> tokens{b,
                                  vocabulary,
                                  static_cast<acc_t<T>>(shape.soft_cap),
                                  shape.terms,
                                  input.targets.data + chunk.begin,
                                  weights,
                                  scalars};
  for_shared_rows(exec, rows, threads_for(vocabulary, 4), tokens);
  if (loss == nullptr) return;
  add_losses(exec, {b.nll, weights, rows, chunk.begin == 0, loss});
}

/// weight_gradient: nothing where only the loss is wanted.
std::vector<HeadLossChunk> prepare(Exec& exec, const HeadLossShape& s, DType type, DType gradient,
                                   std::optional<WeightGradient> weight_gradient) {
  const bool grad = weight_gradient.has_value();
  REQUIRE(s.tokens > 0 && s.vocabulary > 0 && s.width > 0,
          "head loss: {} tokens, a vocabulary of {} and width {} must be positive", s.tokens, s.vocabulary,
          s.width);
  const std::int64_t size = head_loss_chunk(s.tokens, s.vocabulary, type, build_target()),
                     stride = head_loss_stride(s.vocabulary);
  const DType sums = type == DType::f64 ? DType::f64 : DType::f32;
  const auto product = [&](const GemmShape& shape, DType out) -> std::shared_ptr<Gemm> {
    auto gemm = make_gemm(shape, type, out);
    gemm->prepare(exec);
    return gemm;
  };
  std::vector<HeadLossChunk> chunks;
  for (std::int64_t begin = 0; begin < s.tokens; begin += size) {
    const std::int64_t rows = std::min(size, s.tokens - begin);
    HeadLossChunk chunk{.begin = begin, .rows = rows, .logits = {}, .grad_h = {}, .grad_weight = {}};
    if (!chunks.empty() && chunks.back().rows == rows) {
      chunk.logits = chunks.back().logits;
      chunk.grad_h = chunks.back().grad_h;
    } else {
      chunk.logits =
          product({.trans_b = true, .m = rows, .n = s.vocabulary, .k = s.width, .ldc = stride}, sums);
      if (grad) chunk.grad_h = product({.m = rows, .n = s.width, .k = s.vocabulary, .lda = stride}, type);
    }
    if (chunks.size() >= 2 && chunks.back().rows == rows) {
      chunk.grad_weight = chunks.back().grad_weight;  // the first one may overwrite, the others add
    } else if (grad && *weight_gradient != WeightGradient::none) {
      chunk.grad_weight = product({.trans_a = true,
                                   .m = s.vocabulary,
                                   .n = s.width,
                                   .k = rows,
                                   .lda = stride,
                                   .accumulate = *weight_gradient == WeightGradient::add || begin > 0},
                                  gradient);
    }
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

template <class T>
void check(const HeadLossShape& s, const HeadLossInput<T>& input) {
  REQUIRE(input.h.rows == s.tokens && input.h.cols == s.width && input.weight.rows == s.vocabulary &&
              input.weight.cols == s.width && input.targets.count == s.tokens &&
              input.token_weights.count == s.tokens,
          "head loss: h [{}, {}], weight [{}, {}], {} targets, {} weights do not fit {} tokens, {} words, "
          "width {}",
          input.h.rows, input.h.cols, input.weight.rows, input.weight.cols, input.targets.count,
          input.token_weights.count, s.tokens, s.vocabulary, s.width);
}

}  // namespace

const Gemm& telling_product(const std::vector<HeadLossChunk>& chunks) {
  for (const HeadLossChunk& chunk : chunks)
    for (const auto* gemm : {&chunk.logits, &chunk.grad_h, &chunk.grad_weight})
      if (*gemm && (*gemm)->slow()) return **gemm;
  return *chunks.front().logits;
}

template <class T>
HeadLoss<T>::HeadLoss(Exec& exec, const HeadLossShape& shape)
    : shape_(shape), chunks_(prepare(exec, shape, dtype_of<T>(), dtype_of<T>(), std::nullopt)) {}

template <class T>
void HeadLoss<T>::run(Exec& exec, const HeadLossInput<T>& input, Vector<double> loss,
                      Vector<std::byte> workspace) {
  check(shape_, input);
  REQUIRE(loss.count == 2, "head loss: the loss has {} elements, not 2", loss.count);
  run_chunks(exec, input, {loss.data, nullptr}, workspace);
}

template <class T>
void HeadLoss<T>::run_tokens(Exec& exec, const HeadLossInput<T>& input, Vector<double> nll,
                             Vector<std::byte> workspace) {
  check(shape_, input);
  REQUIRE(nll.count == shape_.tokens, "head loss: {} losses for {} tokens", nll.count, shape_.tokens);
  run_chunks(exec, input, {nullptr, nll.data}, workspace);
}

template <class T>
void HeadLoss<T>::run_chunks(Exec& exec, const HeadLossInput<T>& input, const Result& result,
                             Vector<std::byte> workspace) {
  Buffers<T> b = place<T>(shape_, DType::f32, workspace);
  for (const HeadLossChunk& chunk : chunks_) {
    chunk.logits->run(exec, input.h.data + chunk.begin * shape_.width, input.weight.data, nullptr, b.logits,
                      b.gemm);
    if (result.nll != nullptr) b.nll = result.nll + chunk.begin;
    chunk_loss<T, false>(exec, shape_, input, chunk, b, nullptr, result.loss);
  }
}

void head_coefficients(Exec& exec, Vector<const double> dnll, Vector<const float> token_weights,
                       Vector<float> coefficients) {
  REQUIRE(dnll.count == token_weights.count && dnll.count == coefficients.count,
          "head coefficients: {} gradients, {} weights and {} coefficients", dnll.count, token_weights.count,
          coefficients.count);
  for_rows(
      exec, dnll.count, KOKKOS_LAMBDA(const std::int64_t i) {
        coefficients.data[i] = static_cast<float>(dnll.data[i] * token_weights.data[i]);
      });
}

template <class T, class G>
HeadLossGrad<T, G>::HeadLossGrad(Exec& exec, const HeadLossShape& shape, WeightGradient weight_gradient)
    : shape_(shape),
      weight_gradient_(weight_gradient),
      chunks_(prepare(exec, shape, dtype_of<T>(), dtype_of<G>(), weight_gradient)) {}

template <class T, class G>
void HeadLossGrad<T, G>::run(Exec& exec, const HeadLossInput<T>& input, const StepScalars* scalars,
                             Vector<double> loss, Matrix<T> grad_h, Matrix<G> grad_weight,
                             Vector<std::byte> workspace) {
  check(shape_, input);
  REQUIRE(loss.count == 2, "head loss: the loss has {} elements, not 2", loss.count);
  const bool fits = grad_weight.rows == shape_.vocabulary && grad_weight.cols == shape_.width;
  REQUIRE(grad_h.rows == shape_.tokens && grad_h.cols == shape_.width &&
              (fits || weight_gradient_ == WeightGradient::none),
          "head loss: gradients [{}, {}] and [{}, {}] do not fit {} tokens, {} words, width {}", grad_h.rows,
          grad_h.cols, grad_weight.rows, grad_weight.cols, shape_.tokens, shape_.vocabulary, shape_.width);
  const Buffers<T> b = place<T>(shape_, dtype_of<G>(), workspace);
  for (const HeadLossChunk& chunk : chunks_) {
    const T* h = input.h.data + chunk.begin * shape_.width;
    chunk.logits->run(exec, h, input.weight.data, nullptr, b.logits, b.gemm);
    chunk_loss<T, true>(exec, shape_, input, chunk, b, scalars, loss.data);
    chunk.grad_h->run(exec, b.grad_logits, input.weight.data, nullptr,
                      grad_h.data + chunk.begin * shape_.width, b.gemm);
    if (weight_gradient_ == WeightGradient::none) continue;
    chunk.grad_weight->run(exec, b.grad_logits, h, nullptr, grad_weight.data, b.gemm);
  }
}

ZTRAIN_FOR_FLOATS(ZTRAIN_CLASS_INSTANCE, HeadLoss)
ZTRAIN_FOR_GRADIENTS(ZTRAIN_CLASS_INSTANCE, HeadLossGrad)

}  // namespace ztrain::kernels
