#include <algorithm>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/launch/instances.hpp"

namespace ztrain::kernels {

namespace {

void check_heads(const AttentionShape& s) {
  REQUIRE(s.head_dim >= 1 && s.head_dim <= 256, "attention: head_dim is {}; it must be 1 to 256", s.head_dim);
  REQUIRE(s.kv_heads >= 1 && s.heads % s.kv_heads == 0,
          "attention: {} heads cannot share {} key-value heads evenly", s.heads, s.kv_heads);
  REQUIRE(s.window >= 0, "attention: the window is {}; it must be 1 or more, or 0 for none", s.window);
  REQUIRE(s.scale >= 0 && s.soft_cap >= 0,
          "attention: scores are scaled by {} and capped at {}; neither may be negative", s.scale,
          s.soft_cap);
}

template <class T>
void check_inputs(const AttentionInput<T>& input) {
  const AttentionShape& s = input.shape;
  check_heads(s);
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
void check_part_inputs(const AttentionInput<T>& input) {
  AttentionInput<T> whole = input;  // with queries that are among the keys
  whole.shape.first_query = 0;
  whole.shape.keys = std::max(input.shape.keys, input.shape.tokens);
  whole.k.rows += whole.shape.keys - input.shape.keys;
  whole.v.rows += whole.shape.keys - input.shape.keys;
  check_inputs(whole);
  REQUIRE(input.shape.keys > 0 && input.shape.row == 0,
          "attention: a part has {} keys in rows {} elements apart; it needs keys, and dense rows",
          input.shape.keys, input.shape.row);
}

}  // namespace

template <class T>
void check_attention(const AttentionInput<T>& input, Matrix<const T> o, Matrix<const acc_t<T>> lse) {
  check_inputs(input);
  REQUIRE(
      o.rows == input.q.rows && o.cols == input.q.cols && lse.rows == o.rows && lse.cols == input.shape.heads,
      "attention: o [{}, {}] or lse [{}, {}] does not fit q [{}, {}]", o.rows, o.cols, lse.rows, lse.cols,
      input.q.rows, input.q.cols);
}

template <class T>
void check_part_sums(const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums) {
  check_part_inputs(input);
  const auto is = [&](const Matrix<acc_t<T>>& m, std::int64_t cols) {
    return m.rows == input.shape.tokens && m.cols == cols;
  };
  REQUIRE(
      is(sums.out, input.q.cols) && is(sums.maximum, input.shape.heads) && is(sums.sum, input.shape.heads),
      "attention: sums [{}, {}] or their weights [{}, {}] do not fit q [{}, {}]", sums.out.rows,
      sums.out.cols, sums.sum.rows, sums.sum.cols, input.q.rows, input.q.cols);
}

template <class T>
void check_part_gradients(const AttentionInput<T>& input, Matrix<const T> o, Matrix<const acc_t<T>> lse,
                          const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace) {
  check_part_inputs(input);
  const AttentionShape& s = input.shape;
  const auto like = [](const auto& a, const auto& b) { return a.rows == b.rows && a.cols == b.cols; };
  REQUIRE(like(o, input.q) && lse.rows == s.tokens && lse.cols == s.heads && like(gradients.dq, input.q) &&
              like(gradients.dk, input.k) && like(gradients.dv, input.v),
          "attention: o [{}, {}], lse [{}, {}] or gradients [{}, {}], [{}, {}], [{}, {}] do not fit q [{}, "
          "{}] and k [{}, {}]",
          o.rows, o.cols, lse.rows, lse.cols, gradients.dq.rows, gradients.dq.cols, gradients.dk.rows,
          gradients.dk.cols, gradients.dv.rows, gradients.dv.cols, input.q.rows, input.q.cols, input.k.rows,
          input.k.cols);
  const auto needed = attention_part_workspace_bytes(s.tokens, s.heads, dtype_of<T>());
  REQUIRE(workspace.count >= needed, "attention backward: the workspace has {} bytes, {} are needed",
          workspace.count, needed);
}

template <class T>
void check_cached(const CachedAttentionInput<T>& input, Matrix<const T> o) {
  const AttentionShape& s = input.shape;
  check_heads(s);
  REQUIRE(input.q.rows == s.tokens && input.q.cols == s.heads * s.head_dim && input.k.cols == s.head_dim &&
              input.v.cols == s.head_dim && input.k.rows == input.v.rows && input.k.rows % s.kv_heads == 0 &&
              input.begin.count == 1 && (input.sinks.count == 0 || input.sinks.count == s.heads),
          "attention: q [{}, {}] and caches [{}, {}] and [{}, {}] do not fit {} tokens, {} heads, {} "
          "key-value heads of {}; begin has {} elements, sinks have {}",
          input.q.rows, input.q.cols, input.k.rows / input.shape.kv_heads, input.k.cols, input.v.rows,
          input.v.cols, s.tokens, s.heads, s.kv_heads, s.head_dim, input.begin.count, input.sinks.count);
  REQUIRE(o.rows == input.q.rows && o.cols == input.q.cols, "attention: o [{}, {}] does not fit q [{}, {}]",
          o.rows, o.cols, input.q.rows, input.q.cols);
}

ZTRAIN_INSTANCES(check_attention)
ZTRAIN_INSTANCES(check_part_sums)
ZTRAIN_INSTANCES(check_part_gradients)
ZTRAIN_INSTANCES(check_cached)

}  // namespace ztrain::kernels
