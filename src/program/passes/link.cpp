// Dependencies from data hazards, at the granularity of bytes.

#include <map>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/ir/order.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

/// The bytes of one tensor with storage, cut where their history differs: who wrote them last and who has
/// read them since.
class History {
 public:
  /// Adds to `wanted` what a read of [begin, end) must wait for, and records it.
  void read(std::int64_t begin, std::int64_t end, OpId op, Stream stream, PerStream& wanted,
            const Program& program) {
    cut(begin);
    cut(end);
    auto it = segments_.lower_bound(begin);
    while (begin < end) {
      if (it == segments_.end() || it->first > begin) {
        const std::int64_t gap = it == segments_.end() ? end : std::min(end, it->first);
        it = segments_.emplace_hint(it, begin, Segment{gap, no_op, no_ops});
      }
      merge(wanted, it->second.writer, program);
      it->second.readers[at(stream)] = op;
      begin = it->second.end;
      ++it;
    }
  }

  /// The same for a write: what it covers has one history from here on.
  void write(std::int64_t begin, std::int64_t end, OpId op, PerStream& wanted, const Program& program) {
    cut(begin);
    cut(end);
    auto it = segments_.lower_bound(begin);
    while (it != segments_.end() && it->first < end) {
      merge(wanted, it->second.writer, program);
      merge(wanted, it->second.readers);
      it = segments_.erase(it);
    }
    segments_.emplace_hint(it, begin, Segment{end, op, no_ops});
  }

 private:
  struct Segment {
    std::int64_t end;
    OpId writer;
    PerStream readers;  ///< last reader on each stream
  };

  void cut(std::int64_t at) {
    auto it = segments_.lower_bound(at);
    if (it == segments_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    Segment right = it->second;
    it->second.end = at;
    segments_.emplace_hint(std::next(it), at, right);
  }

  std::map<std::int64_t, Segment> segments_;  ///< by first byte
};

}  // namespace

void link_dependencies(Program& program) {
  Order order(program);
  std::vector<History> histories(program.tensors.size());
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    Op& op = program.op(id);
    PerStream wanted = no_ops;
    for (const OpId earlier : op.after) {
      ASSERT(earlier >= 0 && earlier < id, "{} waits for op {}, which is not issued before it",
             describe(program, id), earlier);
      merge(wanted, earlier, program);
    }
    for (const TensorId input : op.inputs) {
      const ByteRange r = byte_range(program, input);
      if (!r.empty()) histories[at(r.base)].read(r.begin, r.end, id, op.stream, wanted, program);
    }
    // The op's own reads may now stand among the readers: they are on its stream, which append_after passes
    // over.
    for (const TensorId output : op.outputs) {
      const ByteRange r = byte_range(program, output);
      if (!r.empty()) histories[at(r.base)].write(r.begin, r.end, id, wanted, program);
    }
    wanted[at(op.stream)] = no_op;
    op.after = order.append_after(id, wanted);
  }
}

}  // namespace ztrain::program
