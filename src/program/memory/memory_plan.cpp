#include <algorithm>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/ir/order.hpp"
#include "program/memory/addresses.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

/// What goes between the host and NVMe goes by whole pages.
std::int64_t alignment(Tier tier) {
  return tier == Tier::device ? 256 : 4096;
}

/// Category by category: what is touched together, such as the weights of all units when they are read, then
/// shares pages, which may be large.
void place_persistent(Program& program) {
  std::vector<Tensor*> order;
  for (Tensor& tensor : program.tensors)
    if (tensor.persistent && tensor.base == no_tensor) order.push_back(&tensor);
  std::ranges::stable_sort(order, {}, &Tensor::category);
  for (Tensor* tensor : order) {
    TierPlan& plan = program.plan[at(tensor->tier)];
    tensor->address = plan.persistent_bytes;
    plan.persistent_bytes += round_up(tensor->bytes(), alignment(tensor->tier));
  }
}

/// The transient tensors of one tier. Of a ring that rotates each slot is one.
struct Blocks {
  std::vector<TensorId> ids;
  std::vector<Block> blocks;  ///< by id
};

/// The bytes of a slot are its tensors' from the first of them to the last: those before the end of the body
/// have the slot of their index, those behind it have moved on by all iterations. In the body it is
/// anybody's.
void add_slots(const Program& program, int tier, Blocks& found) {
  const Repeat& repeat = program.repeat;
  std::vector<std::size_t> begins;  // by ring: its first slot's block
  for (const Ring& ring : repeat.rings) {
    begins.push_back(found.ids.size());
    const Tensor& any = program.tensor(ring.tensors.front());
    if (!program.rotates(ring) || static_cast<int>(any.tier) != tier) continue;
    for (int slot = 0; slot < ring.slots; ++slot) {
      found.ids.push_back(ring.tensors[at(slot)]);
      found.blocks.push_back({round_up(any.bytes(), alignment(any.tier)), repeat.begin, repeat.end - 1});
    }
  }
  for (const Tensor& tensor : program.tensors) {
    if (!program.rotates(tensor) || static_cast<int>(tensor.tier) != tier || tensor.first == no_op) continue;
    const int slots = repeat.rings[at(tensor.ring)].slots;
    const std::size_t begin = begins[at(tensor.ring)];
    Block& before = found.blocks[begin + at(tensor.ring_index % slots)];
    if (tensor.first < repeat.end) before.first = std::min(before.first, tensor.first);
    Block& behind = found.blocks[begin + at((tensor.ring_index + repeat.times - 1) % slots)];
    if (tensor.last >= repeat.end) behind.last = std::max(behind.last, tensor.last);
  }
}

Blocks blocks_of(const Program& program, int tier, bool slots = true) {
  Blocks found;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.persistent || tensor.base != no_tensor || static_cast<int>(tensor.tier) != tier ||
        tensor.first == no_op || (slots && program.rotates(tensor)))
      continue;
    found.ids.push_back(static_cast<TensorId>(t));
    found.blocks.push_back({round_up(tensor.bytes(), alignment(tensor.tier)), tensor.first, tensor.last});
  }
  if (slots) add_slots(program, tier, found);
  return found;
}

/// Returns by block the next of a ring with one slot, or -1.
std::vector<int> next_in_rings(const Program& program, const std::vector<TensorId>& ids) {
  if (program.repeat.times == 1) return {};
  std::vector<int> block_of(program.tensors.size(), -1), next(ids.size(), -1);
  for (std::size_t b = 0; b < ids.size(); ++b) block_of[at(ids[b])] = static_cast<int>(b);
  for (const Ring& ring : program.repeat.rings)
    for (std::size_t k = 1; ring.slots == 1 && k < ring.tensors.size(); ++k)
      if (const int block = block_of[at(ring.tensors[k - 1])]; block >= 0)
        next[at(block)] = block_of[at(ring.tensors[k])];
  return next;
}

bool place_transient(Program& program, int tier, double slack) {
  const auto [ids, blocks] = blocks_of(program, tier);
  if (blocks.empty()) return true;
  TierPlan& plan = program.plan[at(tier)];
  plan.live_bytes = live_bytes(blocks_of(program, tier, false).blocks, program.ops.size());
  // Where every micro-batch is compiled, slots need not keep their bytes for each other.
  const bool rotate =
      std::ranges::any_of(program.repeat.rings, [&](const Ring& ring) { return program.rotates(ring); });
  const auto too_much = [&](std::int64_t bytes) {
    return rotate && static_cast<double>(bytes) > (1 + slack) * static_cast<double>(plan.live_bytes);
  };
  if (too_much(live_bytes(blocks, program.ops.size()))) return false;
  const Addresses chosen = choose_addresses(blocks, program.ops.size(), next_in_rings(program, ids));
  if (chosen.extent < 0) return false;
  for (std::size_t b = 0; b < ids.size(); ++b) program.tensor(ids[b]).address = chosen.address[b];
  for (Tensor& tensor : program.tensors)
    if (program.rotates(tensor) && static_cast<int>(tensor.tier) == tier)
      tensor.address =
          program.tensor(program.repeat.rings[at(tensor.ring)].slot_of(tensor.ring_index)).address;
  plan.transient_bytes = chosen.extent;
  return !too_much(plan.transient_bytes);
}

/// Who held the bytes of one tier's transient region last.
class Occupancy {
 public:
  /// Calls visit for each former holder of [begin, end), then gives the range to `tensor`.
  template <class Visit>
  void take(std::int64_t begin, std::int64_t end, TensorId tensor, Visit visit) {
    cut(begin);
    cut(end);
    auto it = held_.lower_bound(begin);
    for (; it != held_.end() && it->first < end; it = held_.erase(it)) visit(it->second.tensor);
    held_.emplace_hint(it, begin, Held{end, tensor});
  }

 private:
  struct Held {
    std::int64_t end;
    TensorId tensor;
  };

  void cut(std::int64_t at) {
    auto it = held_.lower_bound(at);
    if (it == held_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    const Held right = it->second;
    it->second.end = at;
    held_.emplace(at, right);
  }

  std::map<std::int64_t, Held> held_;  ///< by first byte
};

/// Adds the dependencies that make the reuse of bytes safe. Each access of a tensor must follow all accesses
/// of the tensors that held its bytes just before; those before them then follow by induction. Walks in issue
/// order, so that each op's clock counts the dependencies added to earlier ops.
class ReuseEdges {
 public:
  explicit ReuseEdges(Program& program)
      : program_(program),
        order_(program),
        accesses_(program.tensors.size(), no_ops),
        former_(program.tensors.size(), no_ops),
        occupancy_(tier_count) {}

  void add() {
    for (OpId id = 0; id < static_cast<OpId>(program_.ops.size()); ++id) {
      if (id == program_.repeat.end) move_slots();
      Op& op = program_.op(id);
      PerStream wanted = no_ops;
      for (const OpId earlier : op.after) merge(wanted, earlier, program_);
      for (const TensorId tensor : op.inputs) touch(tensor, id, wanted);
      for (const TensorId tensor : op.outputs) touch(tensor, id, wanted);
      wanted[at(op.stream)] = no_op;
      op.after = order_.append_after(id, wanted);
    }
  }

 private:
  /// Behind the body all that rotates has moved on by all iterations.
  void move_slots() {
    for (const Ring& ring : program_.repeat.rings)
      for (const TensorId id : ring.tensors)
        if (program_.rotates(ring) && accesses_[at(id)] != no_ops)
          take(id, program_.repeat.end, [](TensorId) {});
  }

  template <class Visit>
  void take(TensorId holder, OpId op, Visit visit) {
    const Tensor& tensor = program_.tensor(holder);
    const std::int64_t begin = tensor.address + program_.moved_by(holder, op, 0);
    occupancy_[at(tensor.tier)].take(begin, begin + round_up(tensor.bytes(), alignment(tensor.tier)), holder,
                                     visit);
  }

  void touch(TensorId id, OpId op, PerStream& wanted) {
    const TensorId holder = program_.storage(id);
    const Tensor& tensor = program_.tensor(holder);
    if (tensor.persistent || tensor.first == no_op) return;
    PerStream& own = accesses_[at(holder)];
    PerStream& former = former_[at(holder)];
    if (own == no_ops) take(holder, op, [&](TensorId before) { merge(former, accesses_[at(before)]); });
    merge(wanted, former);
    own[at(program_.op(op).stream)] = op;
  }

  Program& program_;
  Order order_;
  std::vector<PerStream> accesses_;  ///< per tensor: its last access on each stream so far
  std::vector<PerStream> former_;  ///< per tensor: the last accesses of those that held its bytes just before
  std::vector<Occupancy> occupancy_;
};

}  // namespace

void plan_lifetimes(Program& program) {
  for (Tensor& tensor : program.tensors) tensor.first = tensor.last = no_op;
  std::vector<char> released(program.tensors.size(), 0);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.op(id);
    const auto touch = [&](TensorId tensor) {
      const ByteRange range = byte_range(program, tensor);
      Tensor& holder = program.tensor(range.base);
      // A use after the release does not lengthen the life: verify_rank refuses it.
      if (holder.persistent || range.empty() || released[at(range.base)]) return;
      if (holder.first == no_op) holder.first = id;
      holder.last = id;
    };
    for (const TensorId tensor : op.inputs) touch(tensor);
    for (const TensorId tensor : op.outputs) touch(tensor);
    if (!is_release(op)) continue;
    for (const TensorId tensor : op.inputs) released[at(program.storage(tensor))] = 1;
  }
}

std::array<std::int64_t, tier_count> persistent_bytes(const Program& program) {
  std::array<std::int64_t, tier_count> bytes{};
  for (const Tensor& tensor : program.tensors)
    if (tensor.persistent && tensor.base == no_tensor)
      bytes[at(tensor.tier)] += round_up(tensor.bytes(), alignment(tensor.tier));
  return bytes;
}

std::array<std::int64_t, tier_count> live_bytes(const Program& program) {
  std::array<std::int64_t, tier_count> bytes{};
  for (int tier = 0; tier < tier_count; ++tier)
    bytes[at(tier)] = live_bytes(blocks_of(program, tier, false).blocks, program.ops.size());
  return bytes;
}

bool plan_memory(Program& program, double slack) {
  for (TierPlan& plan : program.plan) plan = {};
  for (Tensor& tensor : program.tensors) tensor.address = -1;
  place_persistent(program);
  for (int tier = 0; tier < tier_count; ++tier)
    if (!place_transient(program, tier, slack)) return false;
  ReuseEdges(program).add();
  return true;
}

}  // namespace ztrain::program
