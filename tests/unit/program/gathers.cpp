// When units are gathered and released, on sequences of uses made by hand: what each option promises, and
// what holds for all of them.

#include "base/shape.hpp"
#include "program/passes/gather_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/philox.hpp"

namespace ztrain::program::gathers_test {
namespace {

using Lists = std::vector<std::vector<int>>;

/// One span per use of a unit: forward through `forward`, then backward through `backward`.
std::vector<Span> uses(const std::vector<int>& forward, const std::vector<int>& backward, int micros = 1) {
  std::vector<Span> spans;
  for (int m = 0; m < micros; ++m) {
    for (const int u : forward) spans.push_back({{ActionKind::forward, u, m}, 0, 0, {u}});
    for (const int u : backward) spans.push_back({{ActionKind::backward, u, m}, 0, 0, {u}});
  }
  return spans;
}

/// A model of four units: embedding 0, blocks 1 and 2, head 3, whose backward follows at once.
std::vector<Span> small_step(int micros = 1) {
  return uses({0, 1, 2, 3}, {3, 2, 1}, micros);
}
const std::vector<std::int64_t> sizes{1000, 100, 100, 1000};

/// The gathers' units, span by span.
Lists units_of(const GatherPlan& plan, const Lists& lists) {
  Lists units;
  for (const auto& list : lists) {
    units.emplace_back();
    for (const int g : list) units.back().push_back(plan.gathers[at(g)].unit);
  }
  return units;
}

std::vector<int> gathered(const GatherPlan& plan) {
  std::vector<int> units;
  for (const Gather& g : plan.gathers) units.push_back(g.unit);
  return units;
}

/// The most that is alive at once, in units and in elements, as the sharding pass carries out a plan.
struct Peak {
  int units = 0;
  std::int64_t elements = 0;
};
Peak peak_of(const GatherPlan& plan, const std::vector<std::int64_t>& unit_elements) {
  Peak now, most;
  const auto issue = [&](const std::vector<int>& list) {
    for (const int g : list) {
      ++now.units;
      now.elements += unit_elements[at(plan.gathers[at(g)].unit)];
    }
    most = {std::max(most.units, now.units), std::max(most.elements, now.elements)};
  };
  for (int s = 0; s < static_cast<int>(plan.before.size()); ++s) {
    issue(plan.before[at(s)]);
    for (const Gather& g : plan.gathers) {
      if (g.last != s) continue;
      --now.units;
      now.elements -= unit_elements[at(g.unit)];
    }
    issue(plan.after[at(s)]);
  }
  EXPECT_EQ(now.units, 0) << "something is never released";
  return most;
}

GatherOptions options(int forward, BackwardPrefetch backward) {
  GatherOptions o;
  o.forward_prefetch = forward;
  o.backward_prefetch = backward;
  return o;
}

TEST(Gathers, WithoutPrefetchEachComesWhenItIsNeeded) {
  const GatherPlan plan = plan_gathers(small_step(), sizes, options(0, BackwardPrefetch::none));
  EXPECT_EQ(units_of(plan, plan.before), (Lists{{0}, {1}, {2}, {3}, {}, {2}, {1}}));
  EXPECT_EQ(units_of(plan, plan.after), Lists(7));
  EXPECT_EQ(peak_of(plan, sizes).elements, 1000);
  EXPECT_EQ(peak_of(plan, sizes).units, 1);
}

TEST(Gathers, ForwardPrefetchCountsUnitsBeyondTheOneInUse) {
  const std::vector<std::int64_t> equal(8, 10);
  const auto spans = uses({0, 1, 2, 3, 4, 5, 6, 7}, {});
  for (int ahead = 0; ahead < 5; ++ahead) {
    const GatherPlan plan = plan_gathers(spans, equal, options(ahead, BackwardPrefetch::none));
    int issued = 0;
    for (int s = 0; s < 8; ++s) {
      issued += static_cast<int>(plan.before[at(s)].size());
      EXPECT_EQ(issued, std::min(8, s + 1 + ahead)) << "prefetch " << ahead << ", use " << s;
    }
    EXPECT_EQ(peak_of(plan, equal).units, 1 + ahead);
  }
}

TEST(Gathers, PreComesBesideTheBackwardBefore) {
  const GatherPlan plan = plan_gathers(small_step(), sizes, options(0, BackwardPrefetch::pre));
  EXPECT_EQ(units_of(plan, plan.before), (Lists{{0}, {1}, {2}, {3, 2}, {}, {1}, {}}))
      << "the head's copy lasts to its backward, so the last block's comes beside its forward";
  EXPECT_EQ(units_of(plan, plan.after), Lists(7));
  EXPECT_EQ(peak_of(plan, sizes).elements, 1100);
}

TEST(Gathers, PostComesAfterTheReleaseOfTheOneBefore) {
  const GatherPlan plan = plan_gathers(small_step(), sizes, options(0, BackwardPrefetch::post));
  EXPECT_EQ(units_of(plan, plan.before), (Lists{{0}, {1}, {2}, {3}, {}, {}, {}}));
  EXPECT_EQ(units_of(plan, plan.after)[4], std::vector<int>{2});
  EXPECT_EQ(units_of(plan, plan.after)[5], std::vector<int>{1});
  EXPECT_EQ(peak_of(plan, sizes).units, 1);
  EXPECT_EQ(peak_of(plan, sizes).elements, 1000);
}

TEST(Gathers, PostWaitsForTheBackwardBehindARecomputation) {
  auto spans = small_step();
  for (const std::size_t b : {6, 5, 4}) {
    Span again = spans[b];
    again.action.kind = ActionKind::recompute;
    spans.insert(spans.begin() + static_cast<std::ptrdiff_t>(b), again);
  }
  const GatherPlan plan = plan_gathers(spans, sizes, options(0, BackwardPrefetch::post));
  EXPECT_EQ(units_of(plan, plan.after), (Lists{{}, {}, {}, {}, {}, {2}, {}, {1}, {}, {}}));
  EXPECT_EQ(peak_of(plan, sizes).units, 1);
}

TEST(Gathers, ALimitOfUnitsHoldsBackWhatIsAhead) {
  for (const BackwardPrefetch backward :
       {BackwardPrefetch::pre, BackwardPrefetch::post, BackwardPrefetch::none})
    for (int limit = 1; limit <= 3; ++limit) {
      GatherOptions o = options(8, backward);
      o.max_units = limit;
      const GatherPlan plan = plan_gathers(small_step(2), sizes, o);
      EXPECT_EQ(peak_of(plan, sizes).units, limit);
    }
}

TEST(Gathers, ALimitOfElementsHoldsBackWhatIsAhead) {
  GatherOptions o = options(3, BackwardPrefetch::pre);
  EXPECT_EQ(peak_of(plan_gathers(small_step(), sizes, o), sizes).elements, 2200);
  o.max_elements = 1150;
  const GatherPlan plan = plan_gathers(small_step(), sizes, o);
  EXPECT_EQ(units_of(plan, plan.before)[0], (std::vector<int>{0, 1})) << "the second block has to wait";
  EXPECT_EQ(peak_of(plan, sizes).elements, 1100);
  o.max_elements = 1;
  EXPECT_EQ(peak_of(plan_gathers(small_step(), sizes, o), sizes).units, 1) << "what is needed comes anyway";
}

TEST(Gathers, NearUsesKeepACopy) {
  GatherOptions o = options(0, BackwardPrefetch::none);
  EXPECT_EQ(gathered(plan_gathers(small_step(), sizes, o)), (std::vector<int>{0, 1, 2, 3, 2, 1}));
  o.max_reuse_distance = 1000;
  EXPECT_EQ(gathered(plan_gathers(small_step(), sizes, o)), (std::vector<int>{0, 1, 2, 3, 2, 1}))
      << "the head alone lies between the uses of block 2: 1000 is not fewer";
  o.max_reuse_distance = 1001;
  EXPECT_EQ(gathered(plan_gathers(small_step(), sizes, o)), (std::vector<int>{0, 1, 2, 3, 1}));
  o.max_reuse_distance = 1101;
  const GatherPlan plan = plan_gathers(small_step(), sizes, o);
  EXPECT_EQ(gathered(plan), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(peak_of(plan, sizes).elements, 1200);
}

TEST(Gathers, KeptUnitsAreGatheredOnceInAStep) {
  GatherOptions o = options(1, BackwardPrefetch::pre);
  o.keep = true;
  const GatherPlan plan = plan_gathers(small_step(3), sizes, o);
  EXPECT_EQ(gathered(plan), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(plan.gathers[0].last, 14) << "the third micro-batch's forward";
  EXPECT_EQ(plan.gathers[1].last, 20);
}

TEST(Gathers, ForwardPrefetchReachesIntoTheNextMicroBatch) {
  const GatherPlan plan = plan_gathers(small_step(2), sizes, options(2, BackwardPrefetch::none));
  EXPECT_EQ(gathered(plan), (std::vector<int>{0, 1, 2, 3, 2, 1, 0, 2, 3, 2, 1})) << "block 1 is held";
  EXPECT_EQ(units_of(plan, plan.before)[5], std::vector<int>{2}) << "backward comes first";
  EXPECT_EQ(units_of(plan, plan.before)[6], (std::vector<int>{1, 0, 2}));
}

/// Options and uses drawn at random.
struct Draw {
  std::uint64_t trial, counter = 0;
  int below(int n) {
    return static_cast<int>(philox(5, trial, counter++)[0] % static_cast<std::uint32_t>(n));
  }
};

struct Case {
  std::vector<Span> spans;
  std::vector<std::int64_t> elements;
  GatherOptions options;
};

Case draw_case(std::uint64_t trial) {
  Draw draw{trial};
  Case c;
  const int units = 2 + draw.below(6);
  for (int u = 0; u < units; ++u) c.elements.push_back(1 + draw.below(1000));
  std::vector<int> forward, backward;
  for (int i = 0, n = 1 + draw.below(10); i < n; ++i) forward.push_back(draw.below(units));
  backward.assign(forward.rbegin(), forward.rend() - draw.below(2));
  c.spans = uses(forward, backward, 1 + draw.below(2));
  for (Span& s : c.spans) {
    if (draw.below(5) == 0) s.units.clear();  // what needs nothing
    const int also = draw.below(units);
    if (draw.below(5) == 0 && std::find(s.units.begin(), s.units.end(), also) == s.units.end())
      s.units.push_back(also);
  }
  const auto backward_prefetch = static_cast<BackwardPrefetch>(draw.below(3));
  c.options = options(draw.below(5), backward_prefetch);
  if (draw.below(2) == 0) c.options.max_units = 1 + draw.below(4);
  if (draw.below(2) == 0) c.options.max_elements = 1 + draw.below(3000);
  if (draw.below(3) == 0) c.options.max_reuse_distance = draw.below(2000);
  c.options.keep = draw.below(6) == 0;
  return c;
}

/// Every use finds exactly one copy; copies of a unit do not overlap; all are issued once, in order and in
/// time.
void expect_sound(const Case& c, const GatherPlan& plan) {
  std::map<int, int> last;  // by unit
  for (const Gather& g : plan.gathers) {
    EXPECT_LE(g.first, g.last);
    const auto [before, fresh] = last.try_emplace(g.unit, -1);
    EXPECT_LT(before->second, g.first) << "gathered twice while held";
    before->second = g.last;
  }
  for (int s = 0; s < static_cast<int>(c.spans.size()); ++s)
    for (const int unit : c.spans[at(s)].units) {
      const auto serves = [&](const Gather& g) { return g.unit == unit && g.first <= s && s <= g.last; };
      EXPECT_EQ(std::count_if(plan.gathers.begin(), plan.gathers.end(), serves), 1);
    }
  int next = 0;
  for (int s = 0; s < static_cast<int>(c.spans.size()); ++s) {
    for (const int g : plan.before[at(s)]) {
      EXPECT_EQ(g, next++);
      EXPECT_GE(plan.gathers[at(g)].first, s);
    }
    for (const int g : plan.after[at(s)]) {
      EXPECT_EQ(g, next++);
      EXPECT_GT(plan.gathers[at(g)].first, s);
      EXPECT_EQ(c.spans[at(plan.gathers[at(g)].first)].action.kind, ActionKind::backward);
    }
  }
  EXPECT_EQ(next, static_cast<int>(plan.gathers.size()));
}

/// Where nothing is kept for later, no more is alive than the limits or the spans' own units.
void expect_within_limits(const Case& c, const GatherPlan& plan) {
  if (c.options.keep) return;
  Peak need;
  for (const Span& s : c.spans) {
    std::int64_t elements = 0;
    for (const int unit : s.units) elements += c.elements[at(unit)];
    need = {std::max(need.units, static_cast<int>(s.units.size())), std::max(need.elements, elements)};
  }
  const Peak peak = peak_of(plan, c.elements);
  const int units = c.options.max_units;
  EXPECT_TRUE(units == 0 || peak.units <= units + need.units - 1) << peak.units << " units";
  const std::int64_t elements = c.options.max_elements;
  EXPECT_TRUE(elements == 0 || peak.elements <= elements + need.elements) << peak.elements << " elements";
}

TEST(Gathers, AnyPlanIsSoundAndWithinItsLimits) {
  for (std::uint64_t trial = 0; trial < 3000 && !testing::Test::HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    const Case c = draw_case(trial);
    const GatherPlan plan = plan_gathers(c.spans, c.elements, c.options);
    expect_sound(c, plan);
    expect_within_limits(c, plan);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Spans, AreCutWhereAnActionOrItsUnitsChange) {
  const Action forward{ActionKind::forward, 0, 0}, next{ActionKind::forward, 1, 0};
  std::vector<Op> ops(7);
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].action = i < 5 ? forward : next;
  // No unit, then unit 3 twice with a pause, then unit 4; in the next action unit 4 again.
  const auto spans = cut_into_spans(ops, {{}, {3}, {}, {3}, {4}, {}, {4}});
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].units, std::vector<int>{3});
  EXPECT_EQ(spans[0].end, 4U);
  EXPECT_EQ(spans[1].units, std::vector<int>{4});
  EXPECT_EQ(std::pair(spans[1].begin, spans[1].end), std::pair(std::size_t{4}, std::size_t{5}));
  EXPECT_EQ(spans[2].units, std::vector<int>{4});
  EXPECT_EQ(std::pair(spans[2].begin, spans[2].end), std::pair(std::size_t{5}, std::size_t{7}));
}

}  // namespace
}  // namespace ztrain::program::gathers_test
