// What of the persistent tensors is there when a Program starts, whichever allowed Programs ran before it:
// the largest sets that are consistent, found by taking away until nothing changes.

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "base/error.hpp"
#include "base/index.hpp"
#include "program/ir/order.hpp"
#include "program/jobs/program_set.hpp"

namespace ztrain::program {
namespace {

/// Byte ranges of persistent tensors, none of which touch.
class Bytes {
 public:
  void add(const ByteRange& r) {
    std::int64_t begin = r.begin, end = r.end;
    auto& pieces = pieces_[r.base];
    auto piece = pieces.lower_bound(begin);
    if (piece != pieces.begin() && std::prev(piece)->second >= begin) --piece;
    while (piece != pieces.end() && piece->first <= end) {
      begin = std::min(begin, piece->first);
      end = std::max(end, piece->second);
      piece = pieces.erase(piece);
    }
    pieces[begin] = end;
  }

  void remove(const ByteRange& r) {
    auto& pieces = pieces_[r.base];
    std::map<std::int64_t, std::int64_t> left;
    for (const auto& [begin, end] : pieces) {
      if (begin < std::min(end, r.begin)) left[begin] = std::min(end, r.begin);
      if (std::max(begin, r.end) < end) left[std::max(begin, r.end)] = end;
    }
    pieces = std::move(left);
  }

  bool covers(const ByteRange& r) const {
    const auto found = pieces_.find(r.base);
    if (found == pieces_.end()) return false;
    auto piece = found->second.upper_bound(r.begin);
    return piece != found->second.begin() && std::prev(piece)->second >= r.end;
  }

  bool overlaps(const ByteRange& r) const {
    const auto found = pieces_.find(r.base);
    return found != pieces_.end() && std::ranges::any_of(found->second, [&](const auto& piece) {
             return piece.first < r.end && r.begin < piece.second;
           });
  }

  std::vector<ByteRange> ranges() const {
    std::vector<ByteRange> all;
    for (const auto& [base, pieces] : pieces_)
      for (const auto& [begin, end] : pieces) all.push_back({base, begin, end});
    return all;
  }

  /// What is in both.
  Bytes with(const Bytes& other) const {
    Bytes both;
    for (const ByteRange& a : ranges())
      if (const auto found = other.pieces_.find(a.base); found != other.pieces_.end())
        for (const auto& [begin, end] : found->second)
          if (std::max(a.begin, begin) < std::min(a.end, end))
            both.add({a.base, std::max(a.begin, begin), std::min(a.end, end)});
    return both;
  }

  bool operator==(const Bytes& other) const { return ranges_equal(ranges(), other.ranges()); }

 private:
  static bool ranges_equal(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
    return std::ranges::equal(a, b, [](const ByteRange& x, const ByteRange& y) {
      return x.base == y.base && x.begin == y.begin && x.end == y.end;
    });
  }

  std::map<TensorId, std::map<std::int64_t, std::int64_t>> pieces_;  ///< by tensor: end by begin
};

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.base == b.base && a.begin < b.end && b.begin < a.end;
}

ByteRange common(const ByteRange& a, const ByteRange& b) {
  return {a.base, std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

struct Access {
  ByteRange range;
  OpId op;
};

/// What a Program does to persistent tensors.
struct Footing {
  std::vector<Access> needs;                       ///< reads of what it has not written itself
  std::map<TensorId, std::vector<Access>> writes;  ///< by tensor, in issue order
};

/// Of a range that an op writes. A gather in place leaves the rank's own part as it is.
std::vector<ByteRange> changed_by(const Program& p, const Op& op, const ByteRange& written) {
  if (op.comm.kind != CommKind::all_gather) return {written};
  Bytes changed;
  changed.add(written);
  changed.remove(byte_range(p, op.inputs[0]));
  return changed.ranges();
}

Footing footing_of(const Program& p) {
  Footing f;
  Bytes own;
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
        const std::optional<Bytes> before = before_of(i);
        if (!before) continue;
        Bytes after = left_by(i, *before);
        if (left_[i] && *left_[i] == after) continue;
        left_[i] = std::move(after);
        changed = true;
      }
    }
    for (std::size_t i = 0; i < programs_.size(); ++i) check(i);
  }

 private:
  /// Of a Program: what those that may have run before it leave all of; nothing while none of them is known.
  std::optional<Bytes> before_of(std::size_t i) const {
    std::optional<Bytes> all;
    for (const std::string_view name : set_.after(i)) {
      const Bytes* const left = left_of(name);
      if (left) all = all ? all->with(*left) : *left;
    }
    return all;
  }

  const Bytes* left_of(std::string_view name) const {
    if (name.empty()) return &given_;
    for (std::size_t i = 0; i < programs_.size(); ++i)
      if (programs_[i]->name == name) return left_[i] ? &*left_[i] : nullptr;
    ASSERT(false, "'{}' is not among the Programs of the job", name);
  }

  Bytes left_by(std::size_t i, Bytes there) const {
    for (const auto& [tensor, writes] : footings_[i].writes)
      for (const Access& w : writes) there.add(w.range);
    if (i == 0) return there;
    for (const ByteRange& stale : stale_[i]) there.remove(stale);
    return there;
  }

  /// Of what the first Program derives: what is not up to date when this one has run.
  Bytes stale_after(std::size_t i) const {
    Bytes stale;
    for (const Derived& d : made_.front()) {
      const auto is_stale = [&](const Origin& o) { return stale.overlaps(o.range); };
      if (std::ranges::none_of(d.from, is_stale) && is_up_to_date(d, i)) continue;
      Bytes copied;  // what it is derived from may be a part of it
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
    Bytes fresh;
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
      const Bytes* const there = left_of(name);
      ASSERT(there, "the Program '{}' may come after '{}', which nothing comes before", p.name, name);
      for (const Access& need : footings_[i].needs)
        if (!there->covers(need.range))
          fail("{} of the Program '{}' reads '{}', which is not there, or not up to date, {}",
               describe(p, need.op), p.name, p.tensor(need.range.base).name,
               name.empty() ? "at the beginning" : fmt::format("after '{}'", name));
    }
  }

  const ProgramSet& set_;
  std::vector<const Program*> programs_;
  std::vector<Footing> footings_;
  std::vector<std::vector<Derived>> made_;     ///< by Program
  std::vector<std::vector<ByteRange>> stale_;  ///< by Program: what it leaves out of date
  Bytes given_;
  std::vector<std::optional<Bytes>> left_;  ///< by Program: what is there when it has run
};

}  // namespace

void verify_successions(const ProgramSet& programs, const std::vector<TensorId>& given) {
  Successor(programs, given).run();
}

}  // namespace ztrain::program
