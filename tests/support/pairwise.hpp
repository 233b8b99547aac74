#pragma once
// Rows that together hold every pair of levels of every two factors (a pairwise covering array), chosen
// greedily: each row takes the levels that cover most pairs not covered yet. Deterministic.

#include <cstddef>
#include <cstdlib>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace ztrain::test {

class Pairwise {
 public:
  explicit Pairwise(std::vector<int> levels) : levels_(std::move(levels)) {
    for (std::size_t a = 0; a < levels_.size(); ++a)
      for (std::size_t b = a + 1; b < levels_.size(); ++b)
        for (int i = 0; i < levels_[a]; ++i)
          for (int j = 0; j < levels_[b]; ++j) open_.insert({a, i, b, j});
  }

  std::vector<std::vector<int>> rows() {
    std::vector<std::vector<int>> found;
    while (!open_.empty()) {
      found.push_back(next_row());
      for (std::size_t a = 0; a < levels_.size(); ++a)
        for (std::size_t b = a + 1; b < levels_.size(); ++b)
          open_.erase({a, found.back()[a], b, found.back()[b]});
    }
    return found;
  }

 private:
  /// Starts from a pair that is open, so that every row makes progress.
  std::vector<int> next_row() const {
    std::vector<int> row(levels_.size(), -1);
    const auto [a, i, b, j] = *open_.begin();
    row[a] = i;
    row[b] = j;
    for (std::size_t f = 0; f < levels_.size(); ++f) {
      if (row[f] >= 0) continue;
      int most = -1;
      for (int level = 0; level < levels_[f]; ++level) {
        const int pairs = covered(row, f, level);
        if (pairs > most) most = pairs, row[f] = level;
      }
    }
    return row;
  }

  /// Open pairs of (factor, level) with what the row has so far.
  int covered(std::vector<int> row, std::size_t factor, int level) const {
    int pairs = 0;
    for (std::size_t other = 0; other < row.size(); ++other) {
      if (other == factor || row[other] < 0) continue;
      const auto key = other < factor ? std::tuple{other, row[other], factor, level}
                                      : std::tuple{factor, level, other, row[other]};
      pairs += open_.count(key) > 0 ? 1 : 0;
    }
    return pairs;
  }

  std::vector<int> levels_;
  std::set<std::tuple<std::size_t, int, std::size_t, int>> open_;
};

/// Rows with each two levels of two factors together; with ZTRAIN_MATRIX=full each level with all others.
inline std::vector<std::vector<int>> rows_of(const std::vector<int>& levels) {
  const char* which = std::getenv("ZTRAIN_MATRIX");
  if (which == nullptr || std::string_view(which) != "full") return Pairwise(levels).rows();
  int all = 1;
  for (const int count : levels) all *= count;
  std::vector<std::vector<int>> rows;
  for (int n = 0; n < all; ++n) {
    rows.emplace_back();
    int rest = n;
    for (const int count : levels) rows.back().push_back(std::exchange(rest, rest / count) % count);
  }
  return rows;
}

}  // namespace ztrain::test
