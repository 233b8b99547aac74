#pragma once
// Rows that together hold every pair of levels of every two factors (a pairwise covering array), chosen
// greedily: each row takes the levels that cover most pairs not covered yet. Deterministic.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace ztrain::test {

/// Of a row, by factor. no_level where the factor says nothing in this row: no pair has it.
using Levels = std::vector<int>;
inline constexpr int no_level = -1;

/// (factor, level, factor, level), the former factor first.
using LevelPair = std::tuple<std::size_t, int, std::size_t, int>;

inline std::set<LevelPair> pairs_of(const Levels& row) {
  std::set<LevelPair> pairs;
  for (std::size_t a = 0; a < row.size(); ++a)
    for (std::size_t b = a + 1; b < row.size(); ++b)
      if (row[a] != no_level && row[b] != no_level) pairs.insert({a, row[a], b, row[b]});
  return pairs;
}

class Pairwise {
 public:
  /// So many levels of each factor, from 0 on.
  explicit Pairwise(const Levels& counts) : Pairwise({Levels()}, counts) {}

  /// The first factors have just the levels together that one of `heads` has; `counts` is of those behind,
  /// which need not meet the first `apart` of a head.
  Pairwise(std::vector<Levels> heads, const Levels& counts, std::size_t apart = 0)
      : heads_(std::move(heads)), counts_(counts) {
    for (const Levels& head : heads_) open_.merge(pairs_of(head));
    for (std::size_t b = 0; b < counts_.size(); ++b)
      for (int j = 0; j < counts_[b]; ++j) {
        for (const Levels& head : heads_)
          for (std::size_t a = apart; a < head.size(); ++a)
            if (head[a] != no_level) open_.insert({a, head[a], first() + b, j});
        for (std::size_t a = 0; a < b; ++a)
          for (int i = 0; i < counts_[a]; ++i) open_.insert({first() + a, i, first() + b, j});
      }
  }

  /// A row that is run elsewhere: its pairs are wanted here only after all others.
  void spare(const Levels& row) { spared_.merge(pairs_of(row)); }

  /// As many as it takes for what is not spared; at least `least`, if as many find something new.
  std::vector<Levels> rows(std::size_t least = std::numeric_limits<std::size_t>::max()) {
    std::vector<Levels> found;
    while (!open_.empty() && (found.size() < least || wanted() != open_.end())) {
      found.push_back(next_row());
      for (const LevelPair& pair : pairs_of(found.back())) open_.erase(pair);
    }
    return found;
  }

 private:
  std::size_t first() const { return heads_.front().size(); }

  std::set<LevelPair>::const_iterator wanted() const {
    return std::ranges::find_if(open_, [this](const LevelPair& pair) { return !spared_.contains(pair); });
  }

  /// Starts from a pair that is open, so that every row makes progress.
  Levels next_row() const {
    const auto first_wanted = wanted();
    const auto [a, i, b, j] = first_wanted != open_.end() ? *first_wanted : *open_.begin();
    Levels row = head_with(a, i, b, j);
    row.resize(first() + counts_.size(), no_level);
    row[a] = i;
    row[b] = j;
    for (std::size_t f = first(); f < row.size(); ++f) {
      if (row[f] != no_level) continue;
      int most = -1;
      for (int level = 0; level < counts_[f - first()]; ++level) {
        const int worth = worth_of(row, f, level);
        if (worth > most) most = worth, row[f] = level;
      }
    }
    return row;
  }

  /// Of the heads that may have this pair, the one of which most is open.
  const Levels& head_with(std::size_t a, int i, std::size_t b, int j) const {
    const auto has = [this](const Levels& head, std::size_t f, int level) {
      return f >= first() || head[f] == level;
    };
    const Levels* best = nullptr;
    int most = -1;
    for (const Levels& head : heads_) {
      if (!has(head, a, i) || !has(head, b, j)) continue;
      int worth = 0;
      for (const LevelPair& pair : open_) {
        const auto [c, k, d, l] = pair;
        if (c < first() && has(head, c, k) && has(head, d, l)) worth += worth_of(pair);
      }
      if (worth > most) most = worth, best = &head;
    }
    return *best;
  }

  /// Any number of spared pairs are worth less than one that is not.
  int worth_of(const LevelPair& pair) const {
    return !open_.contains(pair) ? 0 : spared_.contains(pair) ? 1 : 10'000;
  }
  /// Of a level with what the row has so far.
  int worth_of(const Levels& row, std::size_t factor, int level) const {
    int worth = 0;
    for (std::size_t other = 0; other < row.size(); ++other) {
      if (other == factor || row[other] == no_level) continue;
      worth += worth_of(other < factor ? LevelPair{other, row[other], factor, level}
                                       : LevelPair{factor, level, other, row[other]});
    }
    return worth;
  }

  std::vector<Levels> heads_;
  Levels counts_;
  std::set<LevelPair> open_, spared_;
};

/// Rows with each two levels of two factors together; with ZTRAIN_MATRIX=full each level with all others.
inline std::vector<Levels> rows_of(const Levels& levels) {
  const char* which = std::getenv("ZTRAIN_MATRIX");
  if (which == nullptr || std::string_view(which) != "full") return Pairwise(levels).rows();
  int all = 1;
  for (const int count : levels) all *= count;
  std::vector<Levels> rows;
  for (int n = 0; n < all; ++n) {
    rows.emplace_back();
    int rest = n;
    for (const int count : levels) rows.back().push_back(std::exchange(rest, rest / count) % count);
  }
  return rows;
}

}  // namespace ztrain::test
