#pragma once
// The running maximum and sum of a blockwise softmax (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018) over tiles of scores. Included by kernel sources only.

#include "kernels/launch/fast_exp.hpp"

namespace ztrain::kernels {

/// Finite stand-ins for minus infinity: a masked score is far below the initial maximum, so that a block in
/// which a query sees no key adds exp(..) = 0 and no NaN arises.
template <class A>
constexpr A initial_maximum = A(-1e30);
template <class A>
constexpr A masked_score = A(-2e30);

/// Caps scores (AttentionShape::soft_cap); cap, 0 for none, is in their unit.
template <class A>
void cap_scores(A* __restrict scores, int count, A cap) {
  if (!(cap > 0)) return;
  for (int i = 0; i < count; ++i) scores[i] = cap * fast_tanh(scores[i] / cap);
}

/// Scores are kept transposed, [key][query]: maxima and sums over keys are then element-wise over vectors of
/// queries.
template <class A, int block>
struct Softmax {
  alignas(64) A maximum[block];
  alignas(64) A sum[block];
  alignas(64) A correction[block];  ///< what earlier output must be multiplied by after the last update

  Softmax() {
    for (int j = 0; j < block; ++j) {
      maximum[j] = initial_maximum<A>;
      sum[j] = 0;
    }
  }

  /// Replaces scores[keys][block], which are those of 2^score, by 2^(score - maximum).
  void update(A* __restrict scores, int keys) {
    alignas(64) A next[block];
    for (int j = 0; j < block; ++j) next[j] = maximum[j];
    for (int i = 0; i < keys; ++i)
      for (int j = 0; j < block; ++j)
        next[j] = scores[i * block + j] > next[j] ? scores[i * block + j] : next[j];
    for (int j = 0; j < block; ++j) {
      correction[j] = fast_exp2(maximum[j] - next[j]);
      maximum[j] = next[j];
      sum[j] *= correction[j];
    }
    for (int i = 0; i < keys; ++i)
      for (int j = 0; j < block; ++j) {
        const A p = fast_exp2(scores[i * block + j] - next[j]);
        scores[i * block + j] = p;
        sum[j] += p;
      }
  }
};

template <class A>
void scale_rows(A* __restrict tile, int ld, int rows, int cols, const A* __restrict factor) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) tile[i * ld + j] *= factor[i];
}

}  // namespace ztrain::kernels
