// What of the persistent tensors is there when a Program starts, whichever allowed Programs ran before it:
// the largest sets that are consistent, found by taking away until nothing changes.

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/optimizer/record.hpp"
#include "program/ir/byte_set.hpp"
#include "program/ir/order.hpp"
#include "program/jobs/program_set.hpp"
#include "program/verify/at_home.hpp"

namespace ztrain::program {
namespace {

struct Access {
  ByteRange range;
  OpId op;
};

/// What a Program does to persistent tensors.
struct Footing {
  std::vector<Access> needs;                       ///< reads of what it has not written itself
  std::map<TensorId, std::vector<Access>> writes;  ///< by tensor, in issue order
};

Footing footing_of(const Program& p) {
  Footing f;
  ByteSet own;
  const auto each = [&](const std::vector<TensorId>& operands, auto visit) {
    for (const TensorId t : operands)
      if (const ByteRange r = byte_range(p, t); p.tensor(r.base).persistent && !r.empty()) visit(r);
  };
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    each(p.op(id).inputs, [&](const ByteRange& r) {
      if (!own.covers(r)) f.needs.push_back({r, id});
    });
    each(p.op(id).outputs, [&](const ByteRange& r) {
      own.add(r);
      for (const ByteRange& piece : changed_by(p, p.op(id), r)) f.writes[r.base].push_back({piece, id});
    });
  }
  return f;
}

std::span<const Access> of(const std::map<TensorId, std::vector<Access>>& accesses, TensorId tensor) {
  const auto found = accesses.find(tensor);
  return found == accesses.end() ? std::span<const Access>() : found->second;
}

/// A range that a value was made of, and the last op that read it for that.
struct Origin {
  ByteRange range;
  OpId read;
};

/// A range of what is kept, and what an op made it of.
struct Derived {
  ByteRange copy;
  std::vector<Origin> from;
};

/// Each range once.
std::vector<Origin> distinct(std::vector<Origin> origins) {
  const auto key = [](const Origin& o) { return std::tuple(o.range.base, o.range.begin, o.range.end); };
  std::ranges::sort(origins, {},
                    [&](const Origin& o) { return std::tuple_cat(key(o), std::tuple(-o.read)); });
  const auto rest = std::ranges::unique(origins, {}, key);
  origins.erase(rest.begin(), rest.end());
  return origins;
}

/// What a Program makes of what is kept, directly or by what it does not keep. What forward and backward make
/// is no copy of anything.
std::vector<Derived> derivations(const Program& p) {
  std::map<TensorId, std::vector<Origin>> origins;  // of transient tensors
  std::vector<Derived> all;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    const Op& op = p.op(id);
    std::vector<Origin> from;
    for (const TensorId t : op.inputs) {
      if (is_compute(op.action.kind)) break;
      const TensorId storage = p.storage(t);
      if (p.tensor(storage).persistent)
        from.push_back({byte_range(p, t), id});
      else
        from.insert(from.end(), origins[storage].begin(), origins[storage].end());
    }
    // A step that writes its parameters without reading them makes them of their masters, parts that are
    // copies of other parts among them.
    if (op.type == OptimizerStep::op && record_of<OptimizerStep>(op.attributes).whole)
      if (const ByteRange whole = byte_range(p, op.outputs[0]); p.tensor(whole.base).persistent)
        from.push_back({whole, id});
    from = distinct(std::move(from));
    for (const TensorId t : op.outputs) {
      const TensorId storage = p.storage(t);
      if (p.tensor(storage).persistent) {
        all.push_back({byte_range(p, t), from});
      } else if (!from.empty()) {
        origins[storage].insert(origins[storage].end(), from.begin(), from.end());
        origins[storage] = distinct(std::move(origins[storage]));
      }
    }
  }
  return all;
}

class Successor {
 public:
  Successor(const ProgramSet& set, const std::vector<TensorId>& given) : set_(set), programs_(set.all()) {
    for (const Program*& p : programs_)
      if (std::optional<Program> used_at_home = at_home(*p))
        p = &at_home_.emplace_back(std::move(*used_at_home));
    for (const TensorId t : given) given_.add(byte_range(*programs_.front(), t));
    for (const Program* p : programs_) {
      footings_.push_back(footing_of(*p));
      made_.push_back(derivations(*p));
    }
    for (std::size_t i = 0; i < programs_.size(); ++i) stale_.push_back(stale_after(i).ranges());
  }

  void run() {
    left_.assign(programs_.size(), std::nullopt);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < programs_.size(); ++i) {
        const std::optional<ByteSet> before = before_of(i);
        if (!before) continue;
        ByteSet after = left_by(i, *before);
        if (left_[i] && *left_[i] == after) continue;
        left_[i] = std::move(after);
        changed = true;
      }
    }
    for (std::size_t i = 0; i < programs_.size(); ++i) check(i);
  }

 private:
  /// Of a Program: what those that may have run before it leave all of; nothing while none of them is known.
  std::optional<ByteSet> before_of(std::size_t i) const {
    std::optional<ByteSet> all;
    for (const std::string_view name : set_.after(i)) {
      const ByteSet* const left = left_of(name);
      if (left) all = all ? all->with(*left) : *left;
    }
    return all;
  }

  const ByteSet* left_of(std::string_view name) const {
    if (name.empty()) return &given_;
    for (std::size_t i = 0; i < programs_.size(); ++i)
      if (programs_[i]->name == name) return left_[i] ? &*left_[i] : nullptr;
    ASSERT(false, "'{}' is not among the Programs of the job", name);
  }

  ByteSet left_by(std::size_t i, ByteSet there) const {
    for (const auto& [tensor, writes] : footings_[i].writes)
      for (const Access& w : writes) there.add(w.range);
    if (i == 0) return there;
    for (const ByteRange& stale : stale_[i]) there.remove(stale);
    return there;
  }

  /// Of what the first Program derives: what is not up to date when this one has run.
  ByteSet stale_after(std::size_t i) const {
    ByteSet stale;
    for (const Derived& d : made_.front()) {
      const auto is_stale = [&](const Origin& o) { return stale.overlaps(o.range); };
      if (std::ranges::none_of(d.from, is_stale) && is_up_to_date(d, i)) continue;
      ByteSet copied;  // what it is derived from may be a part of it
      copied.add(d.copy);
      for (const Origin& o : d.from) copied.remove(o.range);
      for (const ByteRange& r : copied.ranges()) stale.add(r);
    }
    return stale;
  }

  /// Whether a Program leaves all of a copy as it was, with what it is derived from, or makes all of it anew
  /// of that, as it is in the end.
  bool is_up_to_date(const Derived& d, std::size_t i) const {
    const auto written = [&](const ByteRange& r, OpId after) {
      return std::ranges::any_of(of(footings_[i].writes, r.base),
                                 [&](const Access& w) { return w.op > after && overlap(w.range, r); });
    };
    const auto follows = [&](const Derived& made, const ByteRange& source) {
      return !written(source, no_op) || std::ranges::any_of(made.from, [&](const Origin& o) {
        return overlap(o.range, source) && !written(common(o.range, source), o.read);
      });
    };
    if (std::ranges::none_of(d.from, [&](const Origin& o) { return written(o.range, no_op); })) return true;
    ByteSet fresh;
    for (const Origin& o : d.from) fresh.add(o.range);
    for (const Derived& made : made_[i])
      if (made.copy.base == d.copy.base &&
          std::ranges::all_of(d.from, [&](const Origin& o) { return follows(made, o.range); }))
        fresh.add(made.copy);
    return fresh.covers(d.copy);
  }

  void check(std::size_t i) const {
    const Program& p = *programs_[i];
    for (const std::string_view name : set_.after(i)) {
      const ByteSet* const there = left_of(name);
      ASSERT(there, "the Program '{}' may come after '{}', which nothing comes before", p.name, name);
      for (const Access& need : footings_[i].needs)
        if (!there->covers(need.range))
          fail("{} of the Program '{}' reads '{}', which is not there, or not up to date, {}",
               describe(p, need.op), p.name, p.tensor(need.range.base).name,
               name.empty() ? "at the beginning" : fmt::format("after '{}'", name));
    }
  }

  const ProgramSet& set_;
  std::deque<Program> at_home_;
  std::vector<const Program*> programs_;
  std::vector<Footing> footings_;
  std::vector<std::vector<Derived>> made_;     ///< by Program
  std::vector<std::vector<ByteRange>> stale_;  ///< by Program: what it leaves out of date
  ByteSet given_;
  std::vector<std::optional<ByteSet>> left_;  ///< by Program: what is there when it has run
};

}  // namespace

void verify_successions(const ProgramSet& programs, const std::vector<TensorId>& given) {
  Successor(programs, given).run();
}

}  // namespace ztrain::program
