#include "base/error.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"

namespace ztrain::kernels {

template <class T>
void check(const AttentionInput<T>& input) {
  const AttentionShape& s = input.shape;
  REQUIRE(s.head_dim >= 1 && s.head_dim <= 256, "attention: head_dim is {}; it must be 1 to 256", s.head_dim);
  REQUIRE(s.kv_heads >= 1 && s.heads % s.kv_heads == 0,
          "attention: {} heads cannot share {} key-value heads evenly", s.heads, s.kv_heads);
  REQUIRE(s.window >= 0, "attention: the window is {}; it must be 1 or more, or 0 for none", s.window);
  REQUIRE(s.row == 0 || s.row >= s.heads * s.head_dim,
          "attention: rows {} elements apart do not hold {} heads of {}", s.row, s.heads, s.head_dim);
  const std::int64_t keys = s.key_count();
  REQUIRE(s.first_query >= 0 && s.first_query + s.tokens <= keys,
          "attention: tokens {} .. {} are not among {} keys", s.first_query, s.first_query + s.tokens, keys);
  REQUIRE(s.row == 0 || keys == s.tokens, "attention: {} tokens and {} keys cannot be columns of one matrix",
          s.tokens, keys);
  const auto is = [&](const Matrix<const T>& m, std::int64_t rows, std::int64_t heads) {
    return m.rows == rows && m.cols == heads * s.head_dim;
  };
  REQUIRE(is(input.q, s.tokens, s.heads) && is(input.k, keys, s.kv_heads) && is(input.v, keys, s.kv_heads),
          "attention: q [{}, {}], k [{}, {}], v [{}, {}] do not fit {} tokens, {} keys, {} heads, {} "
          "key-value heads of {}",
          input.q.rows, input.q.cols, input.k.rows, input.k.cols, input.v.rows, input.v.cols, s.tokens, keys,
          s.heads, s.kv_heads, s.head_dim);
  REQUIRE(input.document_start.count == s.tokens, "attention: document_start has {} entries for {} tokens",
          input.document_start.count, s.tokens);
}

template <class T>
void check(const AttentionInput<T>& input, Matrix<const T> o, Matrix<const acc_t<T>> lse) {
  check(input);
  REQUIRE(
      o.rows == input.q.rows && o.cols == input.q.cols && lse.rows == o.rows && lse.cols == input.shape.heads,
      "attention: o [{}, {}] or lse [{}, {}] does not fit q [{}, {}]", o.rows, o.cols, lse.rows, lse.cols,
      input.q.rows, input.q.cols);
}

template <class T>
void check(const CachedAttentionInput<T>& input) {
  const AttentionShape& s = input.shape;
  REQUIRE(s.head_dim >= 1 && s.head_dim <= 256, "attention: head_dim is {}; it must be 1 to 256", s.head_dim);
  REQUIRE(s.kv_heads >= 1 && s.heads % s.kv_heads == 0,
          "attention: {} heads cannot share {} key-value heads evenly", s.heads, s.kv_heads);
  REQUIRE(s.window >= 0, "attention: the window of {} tokens is negative", s.window);
  REQUIRE(input.q.rows == s.tokens && input.q.cols == s.heads * s.head_dim && input.k.cols == s.head_dim &&
              input.v.cols == s.head_dim && input.k.rows == input.v.rows && input.k.rows % s.kv_heads == 0 &&
              input.begin.count == 1,
          "attention: q [{}, {}] and caches [{}, {}] and [{}, {}] do not fit {} tokens, {} heads, {} "
          "key-value heads of {}; begin has {} elements",
          input.q.rows, input.q.cols, input.k.rows / input.shape.kv_heads, input.k.cols, input.v.rows,
          input.v.cols, s.tokens, s.heads, s.kv_heads, s.head_dim, input.begin.count);
}

template <class T>
void check(const CachedAttentionInput<T>& input, Matrix<const T> o) {
  check(input);
  REQUIRE(o.rows == input.q.rows && o.cols == input.q.cols, "attention: o [{}, {}] does not fit q [{}, {}]",
          o.rows, o.cols, input.q.rows, input.q.cols);
}

template void check(const AttentionInput<float>&);
template void check(const AttentionInput<bf16>&);
template void check(const AttentionInput<f16>&);
template void check(const AttentionInput<double>&);
template void check(const AttentionInput<float>&, Matrix<const float>, Matrix<const float>);
template void check(const AttentionInput<bf16>&, Matrix<const bf16>, Matrix<const float>);
template void check(const AttentionInput<f16>&, Matrix<const f16>, Matrix<const float>);
template void check(const AttentionInput<double>&, Matrix<const double>, Matrix<const double>);
template void check(const CachedAttentionInput<float>&);
template void check(const CachedAttentionInput<bf16>&);
template void check(const CachedAttentionInput<f16>&);
template void check(const CachedAttentionInput<double>&);
template void check(const CachedAttentionInput<float>&, Matrix<const float>);
template void check(const CachedAttentionInput<bf16>&, Matrix<const bf16>);
template void check(const CachedAttentionInput<f16>&, Matrix<const f16>);
template void check(const CachedAttentionInput<double>&, Matrix<const double>);

}  // namespace ztrain::kernels
