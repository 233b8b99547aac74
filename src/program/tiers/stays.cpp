#include "program/tiers/stays.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/shape.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/ir/byte_set.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// A run of ops that use a tensor in another tier than that of its home.
struct Stay {
  TensorId storage = no_tensor;
  Tier tier = Tier::device;
  std::vector<OpId> ops;
  OpId earliest = 0;                      ///< its bytes are there before this op
  ByteSet written{}, needs{}, changes{};  ///< of the tensor's bytes
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;  ///< all that is used
  bool evicted = false;
};

/// The Program as it was: who uses what, and how far apart.
class Uses {
 public:
  explicit Uses(const Program& program) : program_(program), groups_(program.ops.size()) {
    int group = 0;
    const Action* last = nullptr;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Action& a = program.ops[i].action;
      if (is_compute(a.kind) && (last == nullptr || !together(*last, a))) {
        ++group;
        last = &a;
      }
      groups_[i] = group;
    }
  }

  /// Where an op wants the bytes of an operand.
  Tier wanted(const Op& op, TensorId storage) const {
    const Tier home = tier(storage);
    if (op.type != Copy::op) return op.tier;
    const TensorId other = program_.storage(op.inputs[0]) == storage ? op.outputs[0] : op.inputs[0];
    return home == Tier::nvme && !are_neighbours(home, tier(other)) ? Tier::host : home;
  }

  /// Whether other blocks compute, or the norm is made, between two ops that use the same thing.
  bool apart(OpId a, OpId b) const {
    const Action &x = action(a), &y = action(b);
    // A state that was stepped ahead of the norm stays in its tier until it is settled.
    if (is_settling(program_.op(b)) && x.kind == y.kind && x.part == y.part) return false;
    if (x.kind == ActionKind::reduce && y.kind == ActionKind::norm) return begun(a, b) > 1;
    if (x.kind != y.kind && (x.kind == ActionKind::norm || y.kind == ActionKind::norm)) return true;
    return begun(a, b) > (is_compute(y.kind) ? 1 : 0);
  }

  /// Where a fetch may be issued that serves this op: at the beginning of what comes before its block, or
  /// before the step of its unit.
  OpId ahead_of(OpId first, OpId earliest) const {
    const Action own = action(first);
    const auto same = [&](OpId i, const Action& a) {
      return is_compute(a.kind) ? together(action(i), a) : action(i) == a;
    };
    const bool ahead = is_compute(own.kind) || own.kind == ActionKind::optimize;
    OpId at_op = first;
    while (at_op > earliest && same(at_op - 1, own)) --at_op;
    for (OpId i = at_op; ahead && i > earliest; --i) {
      const Action& a = action(i - 1);
      if (own.micro >= 0 && a.micro >= 0 && a.micro != own.micro) break;
      if (is_compute(own.kind) ? !is_compute(a.kind) : a.kind != own.kind) continue;
      while (i > earliest && same(i - 1, a)) --i;
      return i;
    }
    return at_op;
  }

 private:
  static bool together(const Action& a, const Action& b) {
    return is_compute(a.kind) && is_compute(b.kind) && a.part == b.part && a.micro == b.micro &&
           (a.kind == ActionKind::forward) == (b.kind == ActionKind::forward);
  }
  /// Blocks' forwards and backwards that begin between two ops.
  int begun(OpId a, OpId b) const { return groups_[at(b)] - groups_[at(a)]; }
  const Action& action(OpId id) const { return program_.op(id).action; }
  Tier tier(TensorId id) const { return program_.tensor(program_.storage(id)).tier; }

  const Program& program_;
  std::vector<int> groups_;  ///< by op: how many blocks' forwards and backwards have begun
};

/// The stays of one tensor.
class StaysOf {
 public:
  StaysOf(Program& program, const Uses& uses, TensorId storage)
      : program_(program), uses_(uses), storage_(storage), home_(program.tensor(storage).tier) {}

  void use(OpId id) {
    const Op& op = program_.op(id);
    if (is_release(op)) return;
    last_use_ = id;
    const Tier wanted = uses_.wanted(op, storage_);
    if (wanted == home_) return use_at_home(id);
    if (!open_ || stays_.back().tier != wanted || uses_.apart(stays_.back().ops.back(), id)) begin(wanted);
    extend(stays_.back(), id);
  }

  /// Those that remain, in the order of their ops.
  std::vector<Stay> finish() {
    if (stays_.empty()) return {};
    const bool persistent = program_.tensor(storage_).persistent;
    if (!persistent && stays_.size() == 1 && !at_home_) {
      settle(stays_[0].tier);
      return {};
    }
    // Of what is kept ops use all, or this rank's shard; of gradients those of some parameters.
    for (Stay& stay : stays_)
      if (!persistent) stay.begin = 0, stay.end = program_.tensor(storage_).bytes();
    for (Stay& stay : stays_)
      stay.evicted = !stay.changes.ranges().empty() && (persistent || last_use_ > stay.ops.back());
    return std::move(stays_);
  }

 private:
  void use_at_home(OpId id) {
    at_home_ = true;
    const bool writes = std::ranges::any_of(program_.op(id).outputs, [&](TensorId t) { return is_own(t); });
    if (writes) last_write_ = id;
    if (writes || (open_ && !stays_.back().changes.ranges().empty())) open_ = false;
  }

  void begin(Tier tier) {
    if (!stays_.empty() && !stays_.back().changes.ranges().empty())
      last_write_ = std::max(last_write_, stays_.back().ops.back());
    stays_.push_back({storage_, tier, {}, last_write_ + 1});
    open_ = true;
  }

  void extend(Stay& stay, OpId id) {
    const Op& op = program_.op(id);
    stay.ops.push_back(id);
    const auto cover = [&](const ByteRange& r) {
      stay.begin = std::min(stay.begin, r.begin);
      stay.end = std::max(stay.end, r.end);
    };
    for (const TensorId t : op.inputs) {
      if (!is_own(t)) continue;
      const ByteRange range = byte_range(program_, t);
      cover(range);
      ByteSet needed;
      needed.add(range);
      for (const ByteRange& known : stay.written.ranges()) needed.remove(known);
      for (const ByteRange& r : needed.ranges()) stay.needs.add(r);
    }
    for (const TensorId t : op.outputs) {
      if (!is_own(t)) continue;
      cover(byte_range(program_, t));
      for (const ByteRange& range : written_ranges(program_, op, t)) {
        for (const ByteRange& changed : changed_by(program_, op, range)) stay.changes.add(changed);
        stay.written.add(range);
      }
    }
  }

  void settle(Tier tier) { program_.tensor(storage_).tier = tier; }
  bool is_own(TensorId t) const { return program_.storage(t) == storage_; }

  Program& program_;
  const Uses& uses_;
  TensorId storage_;
  Tier home_;
  std::vector<Stay> stays_;
  bool open_ = false, at_home_ = false;
  OpId last_use_ = -1, last_write_ = -1;
};

/// Inserts the ops.
class Inserter {
 public:
  Inserter(Program& program, const Uses& uses)
      : program_(program), uses_(uses), before_(program.ops.size()), behind_(program.ops.size()) {}

  void insert(const std::vector<Stay>& stays) {
    for (const Stay& stay : stays) {
      const TensorId own = place(stay, stay.tier);
      const bool far = !are_neighbours(stay.tier, tier(stay.storage));
      const TensorId between = far ? place(stay, Tier::host) : no_tensor;
      const OpId first = stay.ops.front(), last = stay.ops.back();
      const Action fetch = action(ActionKind::fetch, stay, first),
                   evict = action(ActionKind::evict, stay, last);
      const OpId ahead = uses_.ahead_of(first, stay.earliest);
      for (const ByteRange& r : stay.needs.ranges())
        carry(before_[at(ahead)], fetch, {stay.storage, 0}, {between, stay.begin}, {own, stay.begin}, r);
      if (stay.evicted)
        for (const ByteRange& r : stay.changes.ranges())
          carry(behind_[at(last)], evict, {own, stay.begin}, {between, stay.begin}, {stay.storage, 0}, r);
      for (const OpId id : stay.ops) redirect(program_.op(id), stay, own);
      if (!stay.evicted) ends_.push_back({stay.storage, last, own});
    }
  }

  /// The list with what was inserted.
  void finish() {
    for (OpId id = 0; id < static_cast<OpId>(program_.ops.size()); ++id)
      if (is_release(program_.op(id))) redirect_release(id);
    std::vector<Op> ops;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      std::ranges::move(before_[i], std::back_inserter(ops));
      ops.push_back(std::move(program_.ops[i]));
      std::ranges::move(behind_[i], std::back_inserter(ops));
    }
    program_.ops = std::move(ops);
  }

 private:
  /// A tensor that holds bytes of another, from some byte of that on.
  struct Holder {
    TensorId tensor = no_tensor;
    std::int64_t begin = 0;
  };
  struct End {
    TensorId storage;
    OpId op;
    TensorId tensor;
  };

  Tier tier(TensorId id) const { return program_.tensor(id).tier; }

  Action action(ActionKind kind, const Stay& stay, OpId use) const {
    return {kind, program_.tensor(stay.storage).unit, program_.op(use).action.micro};
  }

  TensorId place(const Stay& stay, Tier tier) {
    Tensor t = program_.tensor(stay.storage);
    if (stay.end - stay.begin < t.bytes()) t.shape = {(stay.end - stay.begin) / size_of(t.dtype)};
    t.name = fmt::format("{}.{}", t.name, name_of(tier));
    t.tier = tier;
    t.persistent = false;
    return program_.add(std::move(t));
  }

  TensorId part(const Holder& holder, const ByteRange& r) {
    const Tensor& whole = program_.tensor(holder.tensor);
    if (r.end - r.begin == whole.bytes()) return holder.tensor;
    Tensor t = whole;
    t.base = holder.tensor;
    t.persistent = false;
    t.offset = r.begin - holder.begin;
    t.shape = {(r.end - r.begin) / size_of(t.dtype)};
    return program_.add(std::move(t));
  }

  /// From one to the other, through a third where there is one.
  void carry(std::vector<Op>& to, Action action, const Holder& from, const Holder& through,
             const Holder& into, const ByteRange& r) {
    const bool direct = through.tensor == no_tensor;
    if (!direct) to.push_back(copy(from, through, r, action));
    to.push_back(copy(direct ? from : through, into, r, action));
  }

  Op copy(const Holder& from, const Holder& into, const ByteRange& r, Action action) {
    const bool io = tier(from.tensor) == Tier::nvme || tier(into.tensor) == Tier::nvme;
    const Stream way = tier(into.tensor) == Tier::device ? Stream::to_device : Stream::to_host;
    return {.type = std::string(Copy::op),
            .name = program_.tensor(from.tensor).name,
            .inputs = {part(from, r)},
            .outputs = {part(into, r)},
            .tier = Tier::host,
            .stream = io ? Stream::io : way,
            .action = action};
  }

  void redirect(Op& op, const Stay& stay, TensorId own) {
    for (auto* operands : {&op.inputs, &op.outputs})
      for (TensorId& t : *operands)
        if (program_.storage(t) == stay.storage) t = view_in(own, stay, t);
  }

  /// What an operand is within the stay.
  TensorId view_in(TensorId own, const Stay& stay, TensorId operand) {
    if (operand == stay.storage && program_.tensor(own).bytes() == program_.tensor(operand).bytes())
      return own;
    const auto [it, fresh] = views_.try_emplace({own, operand}, no_tensor);
    if (fresh) {
      Tensor t = program_.tensor(operand);
      t.offset = (operand == stay.storage ? 0 : t.offset) - stay.begin;
      t.base = own;
      t.tier = tier(own);
      t.persistent = false;
      it->second = program_.add(std::move(t));
    }
    return it->second;
  }

  /// What was not evicted ends where it stayed.
  void redirect_release(OpId id) {
    TensorId& released = program_.op(id).inputs[0];
    const End* end = nullptr;
    for (const End& e : ends_)
      if (e.storage == program_.storage(released) && e.op < id && (end == nullptr || e.op > end->op))
        end = &e;
    if (end != nullptr) released = end->tensor;
  }

  Program& program_;
  const Uses& uses_;
  std::vector<std::vector<Op>> before_, behind_;  ///< by op
  std::vector<End> ends_;
  std::map<std::pair<TensorId, TensorId>, TensorId> views_;
};

}  // namespace

bool are_neighbours(Tier a, Tier b) {
  const int distance = static_cast<int>(a) - static_cast<int>(b);
  return -1 <= distance && distance <= 1;
}

void insert_copies(Program& program) {
  std::vector<std::vector<OpId>> used(program.tensors.size());
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id)
    for (const auto* operands : {&program.op(id).inputs, &program.op(id).outputs})
      for (const TensorId t : *operands)
        if (auto& ops = used[at(program.storage(t))]; ops.empty() || ops.back() != id) ops.push_back(id);
  const Uses uses(program);
  std::vector<std::vector<Stay>> all;
  for (std::size_t t = 0; t < used.size(); ++t) {
    StaysOf stays(program, uses, static_cast<TensorId>(t));
    for (const OpId id : used[t]) stays.use(id);
    all.push_back(stays.finish());
  }
  Inserter inserter(program, uses);
  for (const std::vector<Stay>& stays : all) inserter.insert(stays);
  inserter.finish();
  for (Tensor& t : program.tensors)
    if (t.base != no_tensor) t.tier = program.tensor(t.base).tier;
}

}  // namespace ztrain::program
