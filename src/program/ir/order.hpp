#pragma once
// Happens-before of a Program, shared by its last passes. For every op the latest op of each stream that is
// complete before it starts: a vector clock (Fidge 1988, Mattern 1989) over the streams. As the ops of one
// stream complete in issue order, that one op stands for all earlier ones of its stream.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/shape.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

inline constexpr OpId no_op = -1;

/// One op per stream, no_op where there is none.
using PerStream = std::array<OpId, stream_count>;
inline constexpr PerStream no_ops = [] {
  PerStream none{};
  for (OpId& op : none) op = no_op;
  return none;
}();

/// Keeps the later op of each stream.
inline void merge(PerStream& into, const PerStream& other) {
  for (std::size_t s = 0; s < stream_count; ++s) into[s] = std::max(into[s], other[s]);
}
/// The same with one op; none changes nothing.
inline void merge(PerStream& into, OpId op, const Program& program) {
  if (op == no_op) return;
  OpId& own = into[at(program.op(op).stream)];
  own = std::max(own, op);
}

/// Bytes [begin, end) of the tensor that holds them; of a view that moves on (Tensor::step) all that it comes
/// to.
struct ByteRange {
  TensorId base = no_tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool empty() const { return begin >= end; }
  bool operator==(const ByteRange&) const = default;
};
/// Whether they share bytes, and which: an empty range where they share none.
inline bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.base == b.base && a.begin < b.end && b.begin < a.end;
}
inline ByteRange common(const ByteRange& a, const ByteRange& b) {
  if (!overlap(a, b)) return {};
  return {a.base, std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
ByteRange byte_range(const Program& program, TensorId id);

bool is_release(const Op& op);
/// Whether an op settles an optimizer step that was taken ahead of the norm.
bool is_settling(const Op& op);

/// Of an op's output what it writes: all of it, but for the zeros between the gradients of a unit, and for
/// parameters that an optimizer writes whole, piece by piece.
std::vector<ByteRange> written_ranges(const Program& program, const Op& op, TensorId output);

/// Vector clocks, filled op by op in issue order.
class Order {
 public:
  explicit Order(const Program& program);

  /// The next op in issue order, with Op::after as it stands.
  void append(OpId id);
  /// The next op in issue order, which must start after all of `wanted`. Returns the fewest ops of other
  /// streams to wait for, ascending: none that stream order or another of them implies.
  std::vector<OpId> append_after(OpId id, const PerStream& wanted);

  /// True where `earlier` is complete before `later` starts, whatever the timing. Both must have been
  /// appended.
  bool before(OpId earlier, OpId later) const {
    return earlier <= clocks_[at(later)][at(program_.op(earlier).stream)];
  }
  const PerStream& clock(OpId id) const { return clocks_[at(id)]; }

 private:
  PerStream start_of(const Op& op) const;
  void wait_for(PerStream& clock, OpId earlier) const;
  void store(OpId id, const PerStream& clock);

  const Program& program_;
  std::vector<PerStream> clocks_;
  PerStream tail_ = no_ops;  ///< last op appended to each stream
};

}  // namespace ztrain::program
