#pragma once
// Inputs of attention for kernel tests.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::test {

/// Of documents of these lengths; the last takes what is left of the tokens.
inline Array<std::int32_t> document_starts(std::int64_t tokens, const std::vector<std::int64_t>& lengths) {
  Array<std::int32_t> result;
  std::size_t document = 0;
  while (static_cast<std::int64_t>(result.size()) < tokens) {
    const auto begin = static_cast<std::int32_t>(result.size());
    const std::int64_t left = tokens - begin;
    const std::int64_t length = document < lengths.size() ? std::min(left, lengths[document++]) : left;
    result.insert(result.end(), static_cast<std::size_t>(length), begin);
  }
  return result;
}

/// Inputs of one case, in T and as the same numbers in float64.
template <class T>
struct AttentionCase {
  AttentionShape shape;
  double scale;
  Array<T> q, k, v, dout;
  std::vector<double> q64, k64, v64;
  Array<std::int32_t> start;

  AttentionCase(const AttentionShape& s, const std::vector<std::int64_t>& documents)
      : shape(s),
        scale(1 / std::sqrt(static_cast<double>(s.head_dim))),
        q(random<T>(s.tokens * s.heads * s.head_dim, 1, 2)),
        k(random<T>(s.tokens * s.kv_heads * s.head_dim, 2)),
        v(random<T>(s.tokens * s.kv_heads * s.head_dim, 3)),
        dout(random<T>(s.tokens * s.heads * s.head_dim, 4)),
        q64(doubles(q)),
        k64(doubles(k)),
        v64(doubles(v)),
        start(document_starts(s.tokens, documents)) {}

  kernels::AttentionInput<T> input() const { return of<T>(q, k, v); }
  kernels::AttentionInput<double> input64() const { return of<double>(q64, k64, v64); }

  template <class U, class V>
  kernels::AttentionInput<U> of(const V& a, const V& b, const V& c) const {
    return {shape,      scale, matrix(a, shape.tokens), matrix(b, shape.tokens), matrix(c, shape.tokens),
            view(start)};
  }
};

}  // namespace ztrain::test
