#include "program/verify/at_home.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/shape.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/ir/byte_set.hpp"

namespace ztrain::program {
namespace {

/// Bytes of a transient tensor, and `offset` bytes further on in something kept the same.
struct Held {
  TensorId holder, kept;
  std::int64_t offset;

  ByteRange of_kept(const ByteRange& r) const { return {kept, r.begin + offset, r.end + offset}; }
};

/// The copy between tiers that an op is, as what it says of its transient end.
std::optional<Held> held_by(const Program& p, const Op& op) {
  if (op.type != Copy::op || op.inputs.empty() || op.outputs.empty()) return std::nullopt;
  const ByteRange a = byte_range(p, op.inputs[0]), b = byte_range(p, op.outputs[0]);
  if (p.tensor(a.base).tier == p.tensor(b.base).tier) return std::nullopt;
  const bool from = p.tensor(a.base).persistent, to = p.tensor(b.base).persistent;
  if (from == to) return std::nullopt;
  return from ? Held{b.base, a.base, a.begin - b.begin} : Held{a.base, b.base, b.begin - a.begin};
}

/// Whether the holder is as good as what is kept, wherever it is used. accesses: ops that touch either.
/// Throws Error where what is kept is not told of a change.
bool is_as_good(const Program& p, const Held& held, const std::vector<OpId>& accesses) {
  ByteSet changed;  // of what is kept, and not copied back yet
  OpId writer = no_op;
  const auto touches_holder = [&](const Op& op) {
    const auto is_holder = [&](TensorId t) { return p.storage(t) == held.holder; };
    return std::ranges::any_of(op.inputs, is_holder) || std::ranges::any_of(op.outputs, is_holder);
  };
  const auto first = std::ranges::find_if(accesses, [&](OpId id) { return touches_holder(p.op(id)); });
  const auto last =
      std::find_if(accesses.rbegin(), accesses.rend(), [&](OpId id) { return touches_holder(p.op(id)); });
  for (auto id = first; id != last.base(); ++id) {
    const Op& op = p.op(*id);
    if (const auto copy = held_by(p, op); copy && copy->holder == held.holder) {
      if (copy->kept != held.kept || copy->offset != held.offset) return false;
      if (p.storage(op.inputs[0]) == held.kept && changed.overlaps(byte_range(p, op.inputs[0]))) return false;
      if (p.storage(op.outputs[0]) == held.kept) changed.remove(byte_range(p, op.outputs[0]));
      continue;
    }
    for (const TensorId t : op.inputs)
      if (p.storage(t) == held.kept && changed.overlaps(byte_range(p, t))) return false;
    for (const TensorId t : op.outputs) {
      if (p.storage(t) == held.kept) return false;
      if (p.storage(t) == held.holder)
        for (const ByteRange& written : written_ranges(p, op, t))
          for (const ByteRange& r : changed_by(p, op, written)) changed.add(held.of_kept(r)), writer = *id;
    }
  }
  if (changed.ranges().empty()) return true;
  const Tensor& holder = p.tensor(held.holder);
  fail("Program '{}': '{}', which {} changes, is not copied back to '{}'", p.name, holder.name,
       describe(p, writer), p.tensor(held.kept).name);
}

void replace(Program& p, const Held& held, const std::vector<OpId>& accesses) {
  for (const OpId id : accesses) {
    Op& op = p.op(id);
    if (const auto copy = held_by(p, op); copy && copy->holder == held.holder) {
      op.inputs.clear();
      op.outputs.clear();
      continue;
    }
    for (auto* operands : {&op.inputs, &op.outputs})
      for (TensorId& t : *operands)
        if (p.storage(t) == held.holder) {
          Tensor view = p.tensor(t);
          view.offset = held.of_kept(byte_range(p, t)).begin;
          view.base = held.kept;
          view.tier = p.tensor(held.kept).tier;
          t = p.add(std::move(view));
        }
  }
}

}  // namespace

std::optional<Program> at_home(const Program& original) {
  const auto carries = [&](const Op& op) { return held_by(original, op).has_value(); };
  if (std::ranges::none_of(original.ops, carries)) return std::nullopt;
  Program program = original;
  std::vector<std::vector<OpId>> accesses(program.tensors.size());
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id)
    for (const auto* operands : {&program.op(id).inputs, &program.op(id).outputs})
      for (const TensorId t : *operands) accesses[at(program.storage(t))].push_back(id);
  for (bool found = true; found;) {  // again, since what goes to NVMe goes through the host
    found = false;
    std::map<TensorId, Held> holders;
    for (const Op& op : program.ops)
      if (const auto held = held_by(program, op)) holders.try_emplace(held->holder, *held);
    for (const auto& [holder, held] : holders) {
      std::vector<OpId> both;
      std::ranges::merge(accesses[at(holder)], accesses[at(held.kept)], std::back_inserter(both));
      both.erase(std::ranges::unique(both).begin(), both.end());
      if (!is_as_good(program, held, both)) continue;
      replace(program, held, accesses[at(holder)]);
      accesses[at(held.kept)] = std::move(both);
      found = true;
    }
  }
  return program;
}

}  // namespace ztrain::program
