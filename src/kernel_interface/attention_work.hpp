#pragma once
// How attention is done on an NVIDIA GPU, and in which workspace: pure functions of shapes, so that the
// memory plan and the run agree.
//
// cuDNN's fused attention knows batches of sequences of fixed length, and packed ("ragged") sequences whose
// lengths lie on the device. A micro-batch of packed documents becomes one or the other:
//   sequences  one batch entry per sequence: where each holds one document
//   documents  one ragged entry per document, found on the device; their number has a bound, and those that a
//              micro-batch has not are empty, which cuDNN promises to bear from 9.25 on
//   masked     one batch entry per sequence, and an additive mask [sequence, sequence] that keeps documents
//              apart: any number of documents, at the arithmetic of whole sequences
// and what none of them takes is left to the streaming kernels of attention_plain.hpp.
//
// A backward with a fixed order of sums needs the whole gradient of the scores in cuDNN 9.19 (16 bits each),
// so that launches take as few sequences and key-value heads at once as keep it small.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "kernel_interface/attention_shape.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernel_interface/target.hpp"

namespace ztrain {

enum class AttentionWay : std::uint8_t { plain, sequences, documents, masked };

constexpr std::string_view name_of(AttentionWay way) {
  constexpr std::array<std::string_view, 4> names{"plain", "sequences", "documents", "masked"};
  return names[static_cast<std::size_t>(way)];
}

/// Of the library alone: descriptors, and scratch that its documentation does not size.
inline constexpr std::int64_t attention_library_bytes = std::int64_t{16} << 20;
/// A mask, or the gradient of the scores, is made for as few sequences and heads at once as fit this, ...
inline constexpr std::int64_t attention_square_bytes = std::int64_t{1} << 30;
/// ... and where the smallest part needs more than this, another way is taken.
inline constexpr std::int64_t attention_most_square_bytes = std::int64_t{4} << 30;
/// Ragged entries that there may be per sequence on average: each costs blocks that end at once.
inline constexpr std::int64_t attention_most_ragged_entries = 64;

/// Tokens of a batch entry: of a sequence.
constexpr std::int64_t attention_entry(const AttentionShape& s) {
  return s.sequence > 0 && s.tokens % s.sequence == 0 ? s.sequence : s.tokens;
}

/// One way of doing an attention: what a launch takes at once, and the parts of the workspace (offsets in
/// bytes, multiples of 256).
struct AttentionWork {
  AttentionWay way = AttentionWay::plain;
  std::int64_t length = 0;    ///< tokens of an entry at most
  std::int64_t entries = 0;   ///< in all
  std::int64_t at_once = 0;   ///< entries of a launch; divides `entries`
  std::int64_t kv_heads = 0;  ///< of a launch; divides the shape's
  std::int64_t kv_row = 0;    ///< elements from one token to the next of the k, v, dk and dv that it is given
  std::int64_t lengths = 0;   ///< documents: int32 [entries]
  std::int64_t offsets = 0;   ///< documents: int64 [4][entries + 1] of q, k, o and lse, in elements
  std::int64_t copies = 0;    ///< 16 bits [4][tokens, kv_heads * head_dim]: dense k, v, dk and dv; 0: none
  std::int64_t mask = 0;      ///< masked: 16 bits [at_once, length, length]
  std::int64_t lse = 0;       ///< backward of whole entries: fp32, launch after launch [entry, head, length]
  std::int64_t library = 0;
  std::int64_t end = 0;  ///< bytes of the whole workspace

  bool operator==(const AttentionWork&) const = default;
};

/// The ways worth trying, best first; `plain`, always the last, takes everything. Of the shape and type
/// alone: a GPU or a library that cannot do one is found out when it is prepared.
struct AttentionWays {
  std::array<AttentionWay, 3> way{};
  int count = 0;
  constexpr void add(AttentionWay w) { way[static_cast<std::size_t>(count++)] = w; }
  constexpr const AttentionWay* begin() const { return way.data(); }
  constexpr const AttentionWay* end() const { return way.data() + count; }
};

namespace attention_work {

constexpr std::int64_t place(std::int64_t& end, std::int64_t bytes) {
  const std::int64_t at = end;
  end += round_up(bytes, 256);
  return at;
}

/// The largest divisor of n that is at most `most`, and at least 1.
constexpr std::int64_t divisor(std::int64_t n, std::int64_t most) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= n && d <= most; ++d)
    if (n % d == 0) best = d;
  return best;
}

constexpr std::int64_t mask_bytes(const AttentionShape& s) {
  return 2 * attention_entry(s) * attention_entry(s);
}

/// The gradient of the scores of one entry and one key-value head.
constexpr std::int64_t score_bytes(const AttentionShape& s) {
  const std::int64_t length = attention_entry(s);
  return 2 * (s.heads / s.kv_heads) * round_up(length, 64) * round_up(length, 128);
}

constexpr bool fused(const AttentionShape& s, DType type) {
  return size_of(type) == 2 && s.head_dim % 8 == 0 && s.head_dim <= 256 && attention_entry(s) > 1 &&
         s.row % 8 == 0 && s.tokens < (std::int64_t{1} << 31) && s.key_count() == s.tokens &&
         s.soft_cap == 0;  // cuDNN does not cap scores
}

/// Each sequence is one document: there are no more documents than sequences, and none spans two.
constexpr bool one_each(const AttentionShape& s) {
  return s.documents > 0 && s.documents <= s.tokens / attention_entry(s);
}

constexpr bool ragged(const AttentionShape& s) {
  return s.documents > 0 && s.documents * attention_entry(s) <= attention_most_ragged_entries * s.tokens;
}

constexpr bool masked(const AttentionShape& s) {
  return attention_entry(s) % 8 == 0 && mask_bytes(s) <= attention_most_square_bytes;
}

/// Entries and heads of one launch, and the parts of the workspace that both directions have.
constexpr AttentionWork start(const AttentionShape& s, AttentionWay way) {
  AttentionWork w;
  w.way = way;
  w.length = attention_entry(s);
  w.entries = way == AttentionWay::documents ? s.documents : s.tokens / w.length;
  w.at_once = w.entries;
  w.kv_heads = s.kv_heads;
  w.kv_row = s.kv_row();
  if (way == AttentionWay::masked) w.at_once = divisor(w.entries, attention_square_bytes / mask_bytes(s));
  return w;
}

constexpr void place_inputs(AttentionWork& w) {
  if (w.way == AttentionWay::documents) {
    w.lengths = place(w.end, 4 * w.entries);
    w.offsets = place(w.end, 4 * 8 * (w.entries + 1));
  }
  if (w.way == AttentionWay::masked) w.mask = place(w.end, 2 * w.at_once * w.length * w.length);
}

/// For packed documents, cuDNN sums dk and dv of each query head in matrices whose rows are those of dk and
/// dv times the query heads of a key-value head. Where rows are those of a matrix that holds q too, that is
/// many times what dense dk and dv need; so they, and with them k and v, are copied.
constexpr void place_copies(AttentionWork& w, const AttentionShape& s) {
  if (w.way != AttentionWay::documents || s.row == 0 || s.heads == s.kv_heads) return;
  w.kv_row = s.kv_heads * s.head_dim;
  w.copies = place(w.end, 4 * 2 * s.tokens * w.kv_row);
}

/// What cuDNN's backward sums in: see CompositeSDPABackwardNode in cudnn-frontend.
constexpr std::int64_t backward_library_bytes(const AttentionShape& s, const AttentionWork& w) {
  const std::int64_t group = s.heads / s.kv_heads, heads = w.kv_heads * group;
  const bool packed = w.way == AttentionWay::documents;
  const std::int64_t rows = heads * (packed ? round_up(s.tokens, 128) : w.at_once * round_up(w.length, 128));
  const std::int64_t sums = packed ? 4 * round_up(s.tokens, 128) * s.q_row() : 4 * rows * s.head_dim;
  const std::int64_t dq = s.deterministic ? w.at_once * w.kv_heads * score_bytes(s) : sums;
  const std::int64_t dkv = group > 1 ? 2 * 4 * rows * s.head_dim : 0;
  return attention_library_bytes + 4 * rows + dq + dkv;
}

}  // namespace attention_work

constexpr AttentionWays attention_ways(const AttentionShape& s, DType type, bool backward) {
  using namespace attention_work;
  AttentionWays ways;
  if (fused(s, type)) {
    const bool ordered = backward && s.deterministic;
    const bool square = !ordered || score_bytes(s) <= attention_most_square_bytes;
    if (one_each(s)) {
      if (square) ways.add(AttentionWay::sequences);
    } else {
      // Backward of packed documents needs sums of their own size, which cuDNN has where head_dim is a
      // multiple of 16.
      const bool packs = !backward || (!ordered && s.head_dim % 16 == 0);
      if (ragged(s) && packs) ways.add(AttentionWay::documents);
      if (masked(s) && square) ways.add(AttentionWay::masked);
    }
  }
  ways.add(AttentionWay::plain);
  return ways;
}

/// A limit to the number of documents would allow for a better way in this direction.
constexpr bool lacks_documents(AttentionShape s, DType type, bool backward) {
  if (s.documents > 0) return false;
  s.documents = 2 * (s.tokens / attention_entry(s));
  return attention_ways(s, type, backward).way[0] == AttentionWay::documents;
}

constexpr AttentionWork attention_forward_work(const AttentionShape& s, AttentionWay way) {
  using namespace attention_work;
  AttentionWork w = start(s, way);
  if (way == AttentionWay::plain) return w;
  place_inputs(w);
  w.library = place(w.end, attention_library_bytes);
  return w;
}

constexpr AttentionWork attention_backward_work(const AttentionShape& s, DType type, AttentionWay way) {
  using namespace attention_work;
  AttentionWork w = start(s, way);
  if (way == AttentionWay::plain) {
    w.end = s.tokens * s.heads * (type == DType::f64 ? 8 : 4);
    return w;
  }
  if (s.deterministic && way != AttentionWay::documents) {
    const std::int64_t parts = attention_square_bytes / score_bytes(s);
    w.kv_heads = divisor(s.kv_heads, parts);
    w.at_once = divisor(w.at_once, w.kv_heads == s.kv_heads ? parts / s.kv_heads : 1);
  }
  place_inputs(w);
  place_copies(w, s);
  if (way != AttentionWay::documents) w.lse = place(w.end, 4 * s.tokens * s.heads);
  w.library = place(w.end, backward_library_bytes(s, w));
  return w;
}

constexpr AttentionWork attention_work_of(const AttentionShape& s, DType type, AttentionWay way,
                                          bool backward) {
  return backward ? attention_backward_work(s, type, way) : attention_forward_work(s, way);
}

/// What is reserved on a GPU: enough for every way that may be taken.
constexpr std::int64_t attention_cuda_bytes(const AttentionShape& s, DType type, bool backward) {
  std::int64_t most = 0;
  for (const AttentionWay way : attention_ways(s, type, backward))
    most = std::max(most, attention_work_of(s, type, way, backward).end);
  return most;
}

/// The workspaces of the ops.
constexpr std::int64_t attention_forward_bytes(const AttentionShape& s, DType type, Target target) {
  return target == Target::cuda ? attention_cuda_bytes(s, type, false) : 0;
}
constexpr std::int64_t attention_backward_bytes(const AttentionShape& s, DType type, Target target) {
  if (target == Target::cuda) return attention_cuda_bytes(s, type, true);
  return attention_backward_workspace_bytes(s.tokens, s.heads, s.head_dim, type);
}

}  // namespace ztrain
