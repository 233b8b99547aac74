#pragma once
// From document_start, which lies on the device, to what cuDNN's attention reads there. Nothing of this comes
// back to the host, so that a step can be captured; nothing depends on the order of threads. A micro-batch
// that breaks what its AttentionShape promises makes the tokens in question NaN, never wrong.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/attention_shape.hpp"
#include "kernel_interface/attention_work.hpp"

namespace ztrain::kernels {

/// The operands of these kernels. stream: a cudaStream_t.
struct DocumentPass {
  void* stream;
  AttentionShape shape;
  AttentionWork work;
  const std::int32_t* document_start;  ///< [tokens]
  std::byte* workspace;                ///< laid out as `work` says
  void* out;                           ///< 16 bits [tokens, heads * head_dim]: o of forward, dq of backward
  std::int64_t out_row;                ///< elements from one token to the next of out
};

/// Way `documents`: writes the lengths of the documents, int32 [entries], and where they begin in q, k, o and
/// lse, int64 [4][entries + 1]; behind the last document come documents without tokens.
/// Rows of `out` that no entry reaches become NaN: those of documents beyond the bound on their number or
/// longer than a sequence.
void find_documents(const DocumentPass& pass);

/// Way `masked`: the additive mask [at_once, length, length] of `type` for the entries from `first` on: 0
/// where a query sees a key, a number far below every score elsewhere. The row of a query whose document
/// begins in an earlier sequence is NaN.
void write_mask(const DocumentPass& pass, std::int64_t first, DType type);

/// Way `sequences`, after the attention: rows of `out` whose document is not the whole sequence so far become
/// NaN.
void spoil_split_sequences(const DocumentPass& pass);

/// lse [tokens, heads] as backward takes it: for each launch, entries of at_once and heads of its key-value
/// heads, [entry, head, length].
void pack_lse(const DocumentPass& pass, const float* lse);

}  // namespace ztrain::kernels
