#include "program/passes/gather_plan.hpp"
#include "base/shape.hpp"

#include <algorithm>
#include <map>

namespace ztrain::program {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool is_forward(const Span& span) {
  return span.action.kind == ActionKind::forward;
}

/// How many gathers beyond those needed may be under way for the sake of a use in this span.
int window(const Span& span, const GatherOptions& options) {
  const int backward = options.backward_prefetch == BackwardPrefetch::none ? 0 : 1;
  const int wanted = is_forward(span) ? options.forward_prefetch : backward;
  return options.max_units > 0 ? std::min(wanted, options.max_units - 1) : wanted;
}

/// What is still held is not gathered again: a copy stays where its next gather would be due before it could
/// be released, or where the options ask for it.
std::vector<Gather> choose_copies(const std::vector<Span>& spans,
                                  const std::vector<std::int64_t>& unit_elements,
                                  const GatherOptions& options) {
  std::vector<Gather> copies;
  std::map<int, std::size_t> open;  // unit -> its current copy
  // Beside all that is held at some time after its last use, counted as if it were held at once.
  const auto has_room = [&](const Gather& copy) {
    if (options.max_elements == 0 && options.max_units == 0) return true;
    int units = 1;
    std::int64_t elements = unit_elements[at(copy.unit)];
    for (const Gather& other : copies) {
      if (other.last <= copy.last) continue;
      ++units;
      elements += unit_elements[at(other.unit)];
    }
    return units == 1 || ((options.max_elements == 0 || elements <= options.max_elements) &&
                          (options.max_units == 0 || units <= options.max_units));
  };
  const auto stays = [&](const Gather& copy, int next) {
    if (options.keep) return true;
    int between = 0;
    std::int64_t elements = 0;
    for (auto other = copies.rbegin(); other != copies.rend() && other->first > copy.last; ++other) {
      ++between;
      elements += unit_elements[at(other->unit)];
    }
    const bool near =
        between < std::max(1, window(spans[at(next)], options)) || elements < options.max_reuse_distance;
    return near && (next == copy.last + 1 || has_room(copy));
  };
  for (int s = 0; s < static_cast<int>(spans.size()); ++s)
    for (const int unit : spans[at(s)].units) {
      const auto found = open.find(unit);
      if (found != open.end() && stays(copies[found->second], s)) {
        copies[found->second].last = s;
      } else {
        open[unit] = copies.size();
        copies.push_back({unit, s, s});
      }
    }
  return copies;
}

/// Walks the spans and issues each gather as early as the options allow.
class Issuer {
 public:
  Issuer(const std::vector<Span>& spans, const std::vector<std::int64_t>& unit_elements,
         const GatherOptions& options, GatherPlan& plan)
      : spans_(spans), unit_elements_(unit_elements), options_(options), plan_(plan) {}

  void run() {
    std::vector<std::vector<int>> ends(spans_.size());
    for (std::size_t g = 0; g < plan_.gathers.size(); ++g)
      ends[at(plan_.gathers[g].last)].push_back(static_cast<int>(g));
    for (int s = 0; s < static_cast<int>(spans_.size()); ++s) {
      while (pending() && next().first <= s) issue(plan_.before[at(s)]);
      while (needed_ < plan_.gathers.size() && plan_.gathers[needed_].first <= s) ++needed_;
      while (may_prefetch(s, false)) issue(plan_.before[at(s)]);
      for (const int g : ends[at(s)]) {
        --units_;
        elements_ -= unit_elements_[at(plan_.gathers[at(g)].unit)];
      }
      while (may_prefetch(s, true)) issue(plan_.after[at(s)]);
    }
  }

 private:
  bool pending() const { return next_ < plan_.gathers.size(); }
  const Gather& next() const { return plan_.gathers[next_]; }

  bool may_prefetch(int span, bool after_span) const {
    if (!pending()) return false;
    const Span& use = spans_[at(next().first)];
    const bool post = !is_forward(use) && options_.backward_prefetch == BackwardPrefetch::post;
    if (post != after_span || (post && spans_[at(span)].action.kind != ActionKind::backward)) return false;
    if (static_cast<int>(next_ - needed_) >= window(use, options_)) return false;
    const std::int64_t elements = elements_ + unit_elements_[at(next().unit)];
    return (options_.max_units == 0 || units_ < options_.max_units) &&
           (options_.max_elements == 0 || elements <= options_.max_elements);
  }

  void issue(std::vector<int>& list) {
    list.push_back(static_cast<int>(next_));
    ++units_;
    elements_ += unit_elements_[at(next().unit)];
    ++next_;
  }

  const std::vector<Span>& spans_;
  const std::vector<std::int64_t>& unit_elements_;
  const GatherOptions& options_;
  GatherPlan& plan_;
  std::size_t next_ = 0;    ///< gathers issued so far
  std::size_t needed_ = 0;  ///< of them, those that the spans so far need
  int units_ = 0;           ///< alive
  std::int64_t elements_ = 0;
};

}  // namespace

std::vector<Span> cut_into_spans(const std::vector<Op>& ops, const std::vector<std::vector<int>>& unit_read) {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::vector<int>& reads = unit_read[i];
    const auto is_new = [&](int unit) { return !contains(spans.back().units, unit); };
    if (spans.empty() || !(spans.back().action == ops[i].action) ||
        (!spans.back().units.empty() && std::any_of(reads.begin(), reads.end(), is_new)))
      spans.push_back({ops[i].action, i, i, {}});
    spans.back().end = i + 1;
    for (const int unit : reads)
      if (is_new(unit)) spans.back().units.push_back(unit);
  }
  return spans;
}

GatherPlan plan_gathers(const std::vector<Span>& spans, const std::vector<std::int64_t>& unit_elements,
                        const GatherOptions& options) {
  GatherPlan plan;
  plan.gathers = choose_copies(spans, unit_elements, options);
  plan.before.resize(spans.size());
  plan.after.resize(spans.size());
  Issuer(spans, unit_elements, options, plan).run();
  return plan;
}

}  // namespace ztrain::program
