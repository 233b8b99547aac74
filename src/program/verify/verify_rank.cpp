// The proof of one rank's Program. It trusts none of the passes before it: where they keep interval maps,
// this keeps plain lists of the accesses that still matter.

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/ir/order.hpp"
#include "program/loops/repeat.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

std::string on_stream(const Program& program, OpId id) {
  return fmt::format("{} on stream {}", describe(program, id), name_of(program.op(id).stream));
}

void check_tensors(const Program& program) {
  for (const Tensor& tensor : program.tensors) {
    if (tensor.base == no_tensor) continue;
    REQUIRE(tensor.base >= 0 && at(tensor.base) < program.tensors.size(),
            "view '{}' has base {}, but program '{}' has {} tensors", tensor.name, tensor.base, program.name,
            program.tensors.size());
    const Tensor& base = program.tensor(tensor.base);
    REQUIRE(base.base == no_tensor,
            "view '{}' is cut from '{}', which is itself a view: give it the base of that", tensor.name,
            base.name);
    REQUIRE(tensor.offset >= 0 && tensor.offset + tensor.bytes() <= base.bytes(),
            "view '{}' takes bytes [{}, {}) of '{}', which has {}", tensor.name, tensor.offset,
            tensor.offset + tensor.bytes(), base.name, base.bytes());
  }
}

void check_edges(const Program& program, OpId id) {
  for (const OpId earlier : program.op(id).after)
    REQUIRE(earlier >= 0 && earlier < id, "{} waits for op {}, but may wait only for ops issued before it",
            describe(program, id), earlier);
}

/// Operands are in the memory of the tier that the op works on. Copies alone go between two, and NVMe is
/// reached from the host.
void check_tiers(const Program& program, OpId id) {
  const Op& op = program.op(id);
  const auto tier = [&](TensorId t) { return program.tensor(program.storage(t)).tier; };
  if (op.type == Copy::op && op.inputs.size() == 1 && op.outputs.size() == 1) {
    const Tier from = tier(op.inputs[0]), to = tier(op.outputs[0]);
    REQUIRE(std::abs(static_cast<int>(from) - static_cast<int>(to)) <= 1,
            "{} copies '{}' from {} to {}, which is reached from the host alone", describe(program, id),
            program.tensor(op.inputs[0]).name, name_of(from), name_of(to));
    REQUIRE(from != Tier::nvme || to != Tier::nvme, "{} copies '{}' within NVMe", describe(program, id),
            program.tensor(op.inputs[0]).name);
    return;
  }
  for (const auto* operands : {&op.inputs, &op.outputs})
    for (const TensorId t : *operands)
      REQUIRE(is_release(op) || tier(t) == op.tier, "{} works on the {} tier, but '{}' is in the {} tier",
              describe(program, id), name_of(op.tier), program.tensor(t).name, name_of(tier(t)));
}

/// Hazards and initialisation, tensor by tensor.
class Accesses {
 public:
  Accesses(const Program& program, const Order& order)
      : program_(program), order_(order), records_(program.tensors.size()) {}

  void read(TensorId id, OpId op) {
    const ByteRange range = byte_range(program_, id);
    if (range.empty()) return;
    Records& records = records_[at(range.base)];
    check_life(range.base, id, op, records);
    for (Record& write : records.writes) {
      if (!overlap(write, range)) continue;
      require_ordered(write.op, "writes", op, "reads", id);
      write.read = true;
    }
    if (!program_.tensor(range.base).persistent) check_written(range, id, op, records);
    for (Record& read : records.reads) {
      if (read.begin != range.begin || read.end != range.end) continue;
      if (program_.op(read.op).stream != program_.op(op).stream) continue;
      read.op = op;
      return;
    }
    records.reads.push_back({range.begin, range.end, op});
  }

  void write(TensorId id, OpId op) {
    for (const ByteRange& range : written_ranges(program_, program_.op(op), id)) write(range, id, op);
  }

  void release(TensorId id, OpId op) { records_[at(program_.storage(id))].released = op; }

 private:
  struct Record {
    std::int64_t begin, end;
    OpId op;
    bool read = false;  ///< of a write: somebody has read some of it
  };
  struct Records {
    std::vector<Record> writes, reads;
    OpId released = no_op;
  };

  static bool overlap(const Record& record, const ByteRange& range) {
    return record.begin < range.end && range.begin < record.end;
  }

  void write(const ByteRange& range, TensorId id, OpId op) {
    if (range.empty()) return;
    Records& records = records_[at(range.base)];
    check_life(range.base, id, op, records);
    for (const Record& write : records.writes) {
      if (!overlap(write, range)) continue;
      require_ordered(write.op, "writes", op, "overwrites", id);
      REQUIRE(write.read || program_.tensor(range.base).persistent || is_workspace(id),
              "{} overwrites '{}' before any op has read what {} wrote there: it is lost",
              describe(program_, op), program_.tensor(id).name, describe(program_, write.op));
    }
    for (const Record& read : records.reads)
      if (overlap(read, range)) require_ordered(read.op, "reads", op, "overwrites", id);
    // All that this write covers is ordered before it, so whoever is ordered after this write is after that
    // too.
    const auto covered = [&](const Record& r) { return range.begin <= r.begin && r.end <= range.end; };
    std::erase_if(records.writes, covered);
    std::erase_if(records.reads, covered);
    records.writes.push_back({range.begin, range.end, op});
  }

  bool is_workspace(TensorId id) const { return program_.tensor(id).category == Category::workspace; }

  void check_life(TensorId base, TensorId id, OpId op, const Records& records) const {
    const Tensor& holder = program_.tensor(base);
    REQUIRE(records.released == no_op, "{} uses '{}' after {} released it", describe(program_, op),
            program_.tensor(id).name, describe(program_, records.released));
    if (holder.persistent) return;
    REQUIRE(holder.first != no_op && holder.last != no_op,
            "{} uses '{}', which has no lifetime: plan it first", describe(program_, op), holder.name);
    REQUIRE(holder.first <= op && op <= holder.last,
            "{} uses '{}', whose bytes are its own only from {} to {}", describe(program_, op),
            program_.tensor(id).name, describe(program_, holder.first), describe(program_, holder.last));
  }

  void require_ordered(OpId earlier, const char* did, OpId later, const char* does, TensorId id) const {
    if (earlier == later || order_.before(earlier, later)) return;
    fail("{} {} '{}', which {} {}, but nothing orders the two: a dependency is missing",
         on_stream(program_, later), does, program_.tensor(id).name, on_stream(program_, earlier), did);
  }

  void check_written(const ByteRange& range, TensorId id, OpId op, const Records& records) const {
    std::vector<Record> covers;
    for (const Record& write : records.writes)
      if (overlap(write, range)) covers.push_back(write);
    std::sort(covers.begin(), covers.end(),
              [](const Record& a, const Record& b) { return a.begin < b.begin; });
    std::int64_t known = range.begin;
    for (const Record& write : covers) {
      if (write.begin > known) break;
      known = std::max(known, write.end);
    }
    if (known >= range.end) return;
    if (covers.empty())
      fail("{} reads '{}' before any op writes it", describe(program_, op), program_.tensor(id).name);
    fail("{} reads '{}' before any op writes byte {} of it ('{}' was last written by {})",
         describe(program_, op), program_.tensor(id).name, known - range.begin,
         program_.tensor(range.base).name, describe(program_, covers.back().op));
  }

  const Program& program_;
  const Order& order_;
  std::vector<Records> records_;
};

/// Addresses of one region: the persistent or the transient tensors of one tier.
void check_place(const Program& program, const Tensor& tensor) {
  const TierPlan& plan = program.plan[at(tensor.tier)];
  const std::int64_t extent = tensor.persistent ? plan.persistent_bytes : plan.transient_bytes;
  const std::int64_t alignment = tensor.tier == Tier::device ? 256 : 4096;
  REQUIRE(tensor.address >= 0 && tensor.address % alignment == 0,
          "'{}' has address {}: not a multiple of {} bytes", tensor.name, tensor.address, alignment);
  REQUIRE(tensor.address + tensor.bytes() <= extent, "'{}' ends at byte {} of the {} tier's region of {}",
          tensor.name, tensor.address + tensor.bytes(), name_of(tensor.tier), extent);
}

void check_persistent_places(const Program& program) {
  std::map<std::pair<Tier, std::int64_t>, const Tensor*> placed;
  for (const Tensor& tensor : program.tensors) {
    if (!tensor.persistent || tensor.base != no_tensor || tensor.bytes() == 0) continue;
    check_place(program, tensor);
    const auto [it, fresh] = placed.insert({{tensor.tier, tensor.address}, &tensor});
    REQUIRE(fresh, "persistent tensors '{}' and '{}' have the same address {}", it->second->name, tensor.name,
            tensor.address);
  }
  for (auto it = placed.begin(); it != placed.end(); ++it) {
    const auto next = std::next(it);
    if (next == placed.end() || next->first.first != it->first.first) continue;
    REQUIRE(it->second->address + it->second->bytes() <= next->second->address,
            "persistent tensors '{}' and '{}' overlap at byte {}", it->second->name, next->second->name,
            next->second->address);
  }
}

/// Bytes that are reused: lives that overlap in bytes are disjoint in time, and ordered.
class Reuse {
 public:
  Reuse(const Program& program, const Order& order)
      : program_(program),
        order_(order),
        last_on_(program.tensors.size(), no_ops),
        before_(program.tensors.size()),
        holders_(tier_count) {}

  void touch(TensorId id, OpId op) {
    const TensorId holder = program_.storage(id);
    const Tensor& tensor = program_.tensor(holder);
    if (tensor.persistent || tensor.bytes() == 0) return;
    PerStream& own = last_on_[at(holder)];
    if (own == no_ops) occupy(holder, op);
    for (const TensorId former : before_[at(holder)])
      for (const OpId access : last_on_[at(former)])
        REQUIRE(access == no_op || order_.before(access, op),
                "{} uses '{}', whose bytes were those of '{}', which {} uses, but nothing orders the two: a "
                "dependency is "
                "missing",
                on_stream(program_, op), tensor.name, program_.tensor(former).name,
                on_stream(program_, access));
    own[at(program_.op(op).stream)] = op;
  }

 private:
  /// Per tier: who holds the bytes from the key on, up to the next key; no_tensor where nobody has yet.
  using Holders = std::map<std::int64_t, TensorId>;

  void occupy(TensorId id, OpId op) {
    const Tensor& tensor = program_.tensor(id);
    check_place(program_, tensor);
    Holders& holders = holders_[at(tensor.tier)];
    const std::int64_t begin = tensor.address, end = begin + tensor.bytes();
    const auto holder_at = [&](std::int64_t byte) {
      const auto it = holders.upper_bound(byte);
      return it == holders.begin() ? no_tensor : std::prev(it)->second;
    };
    const TensorId behind = holder_at(end), under = holder_at(begin);
    std::vector<TensorId>& former = before_[at(id)];
    if (under != no_tensor) former.push_back(under);
    auto it = holders.lower_bound(begin);
    for (; it != holders.end() && it->first < end; it = holders.erase(it))
      if (it->second != no_tensor) former.push_back(it->second);
    holders[begin] = id;
    holders.try_emplace(end, behind);
    std::sort(former.begin(), former.end());
    former.erase(std::unique(former.begin(), former.end()), former.end());
    for (const TensorId other : former)
      REQUIRE(program_.tensor(other).last < tensor.first,
              "'{}' and '{}' share bytes at address {} of the {} tier, but '{}' is alive until {} and '{}' "
              "is used by {}",
              program_.tensor(other).name, tensor.name, std::max(begin, program_.tensor(other).address),
              name_of(tensor.tier), program_.tensor(other).name,
              describe(program_, program_.tensor(other).last), tensor.name, describe(program_, op));
  }

  const Program& program_;
  const Order& order_;
  std::vector<PerStream> last_on_;             ///< per tensor: its last access so far on each stream
  std::vector<std::vector<TensorId>> before_;  ///< per tensor: those that held its bytes just before
  std::vector<Holders> holders_;
};

void verify_list(const Program& program) {
  check_tensors(program);
  check_persistent_places(program);
  Order order(program);
  Accesses accesses(program, order);
  Reuse reuse(program, order);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.op(id);
    check_edges(program, id);
    check_tiers(program, id);
    order.append(id);
    for (const TensorId input : op.inputs) accesses.read(input, id);
    for (const TensorId output : op.outputs) accesses.write(output, id);
    for (const TensorId input : op.inputs) reuse.touch(input, id);
    for (const TensorId output : op.outputs) reuse.touch(output, id);
    if (is_release(op))
      for (const TensorId input : op.inputs) accesses.release(input, id);
  }
}

}  // namespace

void verify_rank(const Program& program) {
  check_tensors(program);
  if (const std::string fault = repeat_fault(program); !fault.empty())
    fail("ops {} to {} of program '{}' cannot be issued {} times: {}", program.repeat.begin,
         program.repeat.end - 1, program.name, program.repeat.times, fault);
  if (program.repeat.warm_up == 0) return verify_list(program);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) check_edges(program, id);
  verify_list(unrolled(program, times_to_prove(program)));
}

}  // namespace ztrain::program
