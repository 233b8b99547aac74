#include "plan/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <iterator>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {
namespace {

constexpr int most_ranks = 16384;
constexpr std::size_t largest_set = 3;
constexpr int most_at_once = 4;  ///< sets that are compiled at the same time: each takes memory
const CostOptions memory_alone{.detail = Detail::memory, .proven = false};
using Set = std::vector<std::size_t>;  ///< of changes, ascending

std::vector<std::string> overrides_of(const std::vector<Change>& changes, const Set& set) {
  std::vector<std::string> all;
  for (const std::size_t i : set)
    all.insert(all.end(), changes[i].overrides.begin(), changes[i].overrides.end());
  return all;
}

bool goes_with(const std::vector<Change>& changes, std::size_t i, const Set& set) {
  return std::ranges::all_of(set, [&](std::size_t j) { return compatible(changes[i], changes[j]); });
}

bool is_legal(const Question& question, const std::vector<Change>& changes, const Set& set) {
  try {
    job_spec(resolved_deck(question, overrides_of(changes, set)), build_target());
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The changes that together need least of what leaves the numerics alone: where these do not help, no part
/// of them does. One may be legal beside another only, so those refused are tried again.
Set frugal_set(const Question& question, const std::vector<Change>& changes) {
  Set set;
  for (std::size_t before = changes.size() + 1; set.size() != before;) {
    before = set.size();
    for (std::size_t i = 0; i < changes.size(); ++i) {
      if (!changes[i].frugal || !goes_with(changes, i, set)) continue;
      Set more = set;
      more.insert(std::upper_bound(more.begin(), more.end(), i), i);
      const bool legal = is_tiling(changes[i])
                             ? try_fit(question, overrides_of(changes, more), memory_alone).legal
                             : is_legal(question, changes, more);
      if (legal) set = std::move(more);
    }
  }
  return set;
}

Set offloads_of(const Set& set, const std::vector<Change>& changes) {
  Set some;
  std::ranges::copy_if(set, std::back_inserter(some), [&](std::size_t i) { return is_offload(changes[i]); });
  return some;
}

class FixSearch {
 public:
  FixSearch(const Question& question, const Watch& watch)
      : question_(question), watch_(watch), changes_(changes_for(question)) {}

  Fixes run(std::size_t most) {
    const Set all = frugal_set(question_, changes_);
    std::ranges::set_difference(all, offloads_of(all, changes_), std::back_inserter(frugal_at_home_));
    learn({all, frugal_at_home_});
    const Set frugal = with_room_on_the_host(all);
    if (fits(frugal)) {
      learn_room(with_offloads());
      for (std::size_t size = 1; size <= largest_set; ++size) each(size, false, {});
      if (fits_.empty()) attempt({smallest_part(frugal, {})});
      each(1, true, {});
    } else {
      needed_ = frugal;
      for (std::size_t size = 1; size <= 2; ++size) each(size, true, {});
      for (std::size_t size = 1; size <= 2 && fits_.empty(); ++size) each(size, true, frugal);
    }
    sort();
    if (result_.best.size() > most) result_.best.resize(most);
    result_.ended = watch_.ended();
    return std::move(result_);
  }

 private:
  /// All sets of this size, either of changes of numerics or of the others; each together with `besides`, as
  /// far as that is needed.
  void each(std::size_t size, bool numerics, const Set& besides) {
    std::vector<Set> sets;
    extend({}, size, numerics, sets);
    if (besides.empty()) return attempt(worth_trying(std::move(sets)));
    for (const Set& set : sets)
      if (fits(merged(set, besides))) attempt({merged(set, smallest_part(besides, set))});
  }

  /// Adds all sets of the size that have those of `set`, and behind them others that go with these.
  void extend(const Set& set, std::size_t size, bool numerics, std::vector<Set>& sets) const {
    if (set.size() == size) return sets.push_back(set);
    for (std::size_t i = set.empty() ? 0 : set.back() + 1; i < changes_.size(); ++i) {
      if ((changes_[i].effect == Effect::numerics) != numerics || !goes_with(changes_, i, set)) continue;
      Set more = set;
      more.push_back(i);
      extend(more, size, numerics, sets);
    }
  }

  /// The most frugal set; where that is too large for the tiers it sends things to, one that sends less.
  Set with_room_on_the_host(const Set& all) {
    if (fits(all)) return all;
    if (fits(frugal_at_home_)) return frugal_at_home_;
    const std::vector<Set> fewer = with_offloads();
    learn(fewer);
    const auto found = std::ranges::find_if(fewer, [&](const Set& set) { return fits(set); });
    return found == fewer.end() ? all : *found;
  }

  std::vector<Set> worth_trying(std::vector<Set> sets) {
    std::erase_if(sets, [&](const Set& set) { return !is_worth_trying(set) || !may_fit_alone(set); });
    return sets;
  }

  /// What is_worth_trying will ask, so that it is found out side by side.
  std::vector<Set> with_offloads() const {
    std::vector<Set> offloads;
    for (std::size_t i = 0; i < changes_.size(); ++i)
      if (is_offload(changes_[i])) offloads.push_back({i});
    if (!known_.at(frugal_at_home_))
      for (std::size_t first = 0, singles = offloads.size(); first < singles; ++first)
        for (std::size_t i = first + 1; i < singles; ++i)
          if (goes_with(changes_, offloads[i].front(), offloads[first]))
            offloads.push_back(merged(offloads[first], offloads[i]));
    for (Set& set : offloads) set = merged(set, frugal_at_home_);
    return offloads;
  }

  /// Offload multiplies the sets: it is tried by itself and beside one other change, beside others only where
  /// nothing fits without, and only such of it with which the most frugal setting fits.
  bool is_worth_trying(const Set& set) {
    const Set away = offloads_of(set, changes_);
    if (!needed_.empty() || (away.empty() && frugal_at_home_.empty())) return true;
    const std::size_t most = away.empty() ? largest_set : fits(frugal_at_home_) ? 1 : 2;
    return set.size() <= most && may_fit(merged(away, frugal_at_home_));
  }

  bool may_fit_alone(const Set& set) {
    if (needed_.empty()) return true;
    const Set all = merged(set, needed_);
    return !is_legal(question_, changes_, all) || fits(all);
  }

  static Set merged(const Set& a, const Set& b) {
    Set both;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }

  /// What is left of `set` when everything is dropped without which it still fits, together with `besides`.
  Set smallest_part(Set set, const Set& besides) {
    for (std::size_t k = set.size(); k-- > 0;) {
      Set less = set;
      std::erase(less, set[k]);
      if (!less.empty() && fits(merged(less, besides))) set = less;
    }
    return set;
  }

  Fix fix_of(const Set& set) const {
    Fix fix{{overrides_of(changes_, set), {}, {}}, {}};
    for (const std::size_t i : set) {
      fix.changes.push_back(changes_[i]);
      fix.effect = std::max(fix.effect, changes_[i].effect);
    }
    return fix;
  }

  bool contains_a_fit(const Set& set) const {
    return std::ranges::any_of(fits_, [&](const Set& fit) { return std::ranges::includes(set, fit); });
  }

  /// What becomes of sets, each of which is compiled beside others, and is nothing where it does not fit or
  /// time is up.
  std::vector<std::optional<Fix>> fitting(const std::vector<Set>& sets, const CostOptions& options) {
    std::vector<std::optional<Fix>> fixes(sets.size());
    std::vector<std::optional<Trial>> trials(sets.size());
    for (std::size_t s = 0; s < sets.size(); ++s) fixes[s] = fix_of(sets[s]);
    std::atomic<int> tried = result_.tried;
    std::mutex saying;
    in_parallel(
        static_cast<int>(watch_.take(std::ssize(sets))),
        [&](int s) {
          if (watch_.late()) return;
          trials[at(s)] = try_fit(question_, fixes[at(s)]->overrides, options);
          tried += trials[at(s)]->legal;
          const std::lock_guard lock(saying);
          watch_.say(
              fmt::format("looking for changes that make it fit: {} tried, {} fit", tried, fits_.size()));
        },
        most_at_once);
    for (std::size_t s = 0; s < sets.size(); ++s) {
      if (trials[s]) ++(trials[s]->legal ? result_.tried : result_.refused);
      if (trials[s] && trials[s]->cost)
        fixes[s]->cost = std::move(*trials[s]->cost);
      else
        fixes[s].reset();
    }
    return fixes;
  }

  /// Finds out whether sets fit, side by side; fits() knows it then. Only where it is close are they
  /// compiled.
  void learn(std::vector<Set> sets) {
    std::ranges::sort(sets);
    const auto same = std::ranges::unique(sets);
    sets.erase(same.begin(), same.end());
    learn_room(sets);
    for (const Set& set : sets)
      if (const Room room = room_.at(set); room != Room::little) known_[set] = room == Room::ample;
    std::erase_if(sets, [&](const Set& set) { return known_.contains(set); });
    const std::vector<std::optional<Fix>> fixes = fitting(sets, memory_alone);
    for (std::size_t s = 0; s < sets.size(); ++s) known_[sets[s]] = fixes[s].has_value();
  }

  bool fits(const Set& set) {
    learn({set});
    return known_.at(set);
  }

  /// Finds out what room sets leave, side by side; may_fit() knows it then.
  void learn_room(std::vector<Set> sets) {
    std::erase_if(sets, [&](const Set& set) { return room_.contains(set); });
    std::vector<Room> found(sets.size(), Room::little);
    in_parallel(
        std::ssize(sets),
        [&](int s) {
          if (!watch_.late()) found[at(s)] = room_for(question_, overrides_of(changes_, sets[at(s)]));
        },
        most_at_once);
    for (std::size_t s = 0; s < sets.size(); ++s) room_[sets[s]] = found[s];
  }

  bool may_fit(const Set& set) {
    if (const auto known = known_.find(set); known != known_.end()) return known->second;
    learn_room({set});
    return room_.at(set) != Room::none;
  }

  /// Sets of one size, or a single one.
  void attempt(std::vector<Set> sets) {
    std::erase_if(sets, [&](const Set& set) { return contains_a_fit(set); });
    std::vector<std::optional<Fix>> fixes = fitting(sets, {.detail = Detail::step});
    for (std::size_t s = 0; s < sets.size(); ++s) {
      if (!fixes[s]) continue;
      fits_.push_back(sets[s]);
      result_.best.push_back(std::move(*fixes[s]));
    }
  }

  void sort() {
    std::ranges::stable_sort(result_.best, {}, [](const Fix& f) {
      return std::pair(f.effect == Effect::numerics, -f.cost.tokens_per_second());
    });
  }

  const Question& question_;
  const Watch& watch_;
  std::vector<Change> changes_;
  std::vector<Set> fits_;
  /// Changes that are known to be needed: a set that does not fit together with them does not fit without
  /// them. Empty until that is known.
  Set needed_;
  Set frugal_at_home_;         ///< the most frugal of the changes, without offload
  std::map<Set, bool> known_;  ///< whether they fit
  std::map<Set, Room> room_;   ///< what is left of the limits by the bytes alive at once
  Fixes result_;
};

/// With some batch, compiled only where it is close. A mesh that does not go together with so many ranks does
/// not fit.
bool fits_on(Question question, const std::vector<std::string>& more, int ranks) {
  question.ranks = ranks;
  if (const Room room = room_for(question, more, true); room != Room::little) return room == Room::ample;
  return try_fit(question, more, {.any_batch = true, .detail = Detail::memory, .proven = false})
      .cost.has_value();
}

/// Of a deck: what the ranks of its jobs are multiples of.
struct JobSizes {
  std::int64_t per_node, beside;  ///< beside: ranks that see the same sequences

  JobSizes(const Question& question, const config::Deck& deck)
      : per_node(machine_for(question, deck).ranks_per_node),
        beside(known_degree(deck.mesh.pipeline) * known_degree(deck.mesh.context) *
               known_degree(deck.mesh.tensor)) {}

  /// The i-th: powers of two within a node, then whole nodes; or the next that is a multiple of `beside`.
  /// Never falls with i.
  std::int64_t operator[](int i) const {
    std::int64_t ranks = 1;
    for (; i > 0 && ranks < per_node; --i) ranks *= 2;
    if (i > 0 || ranks > per_node) ranks = (i + 1) * per_node;
    return round_up(ranks, beside);
  }
};

/// From the i-th size of a job on, which holds the deck with some batch: the first that divides the deck's
/// own.
LeastRanks dividing_the_batch(Question question, const std::vector<std::string>& more, int i,
                              const JobSizes& sizes, const Watch& watch) {
  const config::Batch batch = deck_of(question, more).batch;
  const std::int64_t least = sizes[i];
  const std::int64_t most = std::min<std::int64_t>(batch.global * sizes.beside, most_ranks);
  for (; sizes[i] <= most && watch.take(1) > 0; ++i) {
    question.ranks = static_cast<int>(sizes[i]);
    if (try_fit(question, more, memory_alone).cost) return {question.ranks, {}};
  }
  const std::int64_t once = batch.micro * std::max<std::int64_t>(1, least / sizes.beside);
  return {static_cast<int>(least),
          {fmt::format("batch.global={}", once * std::max<std::int64_t>(1, batch.global / once))}};
}

}  // namespace

std::vector<Change> changes_for(const Question& question) {
  const config::Deck deck = deck_of(question);
  std::vector<Change> all = changes_for(deck);
  const bool in_the_node =
      question.limits.target == Target::cpu || machine_for(question, deck).device_memory <= 0;
  if (in_the_node) std::erase_if(all, is_offload);
  return all;
}

std::vector<std::string> frugal_overrides(const Question& question) {
  const std::vector<Change> all = changes_for(question);
  return overrides_of(all, frugal_set(question, all));
}

Fixes fixes_for(const Question& question, const Watch& watch, std::size_t most) {
  const Watch of_ranks = watch.part(most_sizes);
  auto ranks = std::async(std::launch::async, [&] { return least_ranks(question, {}, of_ranks); });
  Fixes fixes = FixSearch(question, watch).run(most);
  fixes.least_ranks = ranks.get();
  return fixes;
}

std::optional<LeastRanks> least_ranks(const Question& question, const std::vector<std::string>& more,
                                      const Watch& watch) {
  const JobSizes sizes(question, deck_of(question, more));
  const auto fits = [&](int i) { return fits_on(question, more, static_cast<int>(sizes[i])); };
  if (sizes[0] > most_ranks) return std::nullopt;
  int below = -1, at = 0;  // sizes: does not fit, fits
  while (!fits(at)) {
    below = at;
    at = 2 * at + 1;
    watch.say(fmt::format("looking for the least number of ranks: more than {}", sizes[below]));
    if (watch.take(1) == 0 || sizes[at] > most_ranks) return std::nullopt;
  }
  while (at - below > 1) {
    const int middle = (at + below) / 2;
    (fits(middle) ? at : below) = middle;
  }
  return dividing_the_batch(question, more, at, sizes, watch);
}

std::string cheapest_fix_text(const Question& question) {
  constexpr std::int64_t most = 200;
  constexpr double seconds = 60;
  const Fixes fixes = fixes_for(question, Watch(most, seconds), 3);
  std::string text;
  for (const Fix& fix : fixes.best)
    text += fmt::format("{} {} ({}, {} per rank{})", text.empty() ? "It fits with" : "; or with",
                        command_line(fix.overrides), name_of(fix.effect),
                        format_decimal_bytes(verdict_of(fix.cost).device_needed), host_memory_text(fix.cost));
  if (text.empty()) text = "No change of the deck that is known to save memory makes it fit";
  if (!fixes.least_ranks) return text;
  const auto& [ranks, overrides] = *fixes.least_ranks;
  const int per_node = machine_for(question, deck_of(question)).ranks_per_node;
  return text + fmt::format(". {} it fits on {}{}",
                            overrides.empty() ? "As it is" : "With " + command_line(overrides),
                            count_text(ranks, "rank"),
                            ranks <= per_node
                                ? ""
                                : fmt::format(", {} of {}", count_text(ceil_div(ranks, per_node), "node"),
                                              count_text(per_node, "rank")));
}

}  // namespace ztrain::plan
