#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace ztrain {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

/// Characters of the pattern that the set beginning at `[` takes up, or 0 when it is never closed.
std::size_t set_length(std::string_view pattern) {
  std::size_t i = 1;
  if (i < pattern.size() && pattern[i] == '!') ++i;
  const std::size_t close = pattern.find(']', i + 1);  // a `]` in the first place is a member of the set
  return close == std::string_view::npos ? 0 : close + 1;
}

/// Whether c is in the set, written with its brackets.
bool in_set(std::string_view set, char c) {
  const bool negated = set[1] == '!';
  const std::string_view members = set.substr(negated ? 2 : 1, set.size() - (negated ? 3 : 2));
  bool found = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool range = i + 2 < members.size() && members[i + 1] == '-';
    found = found || (range ? members[i] <= c && c <= members[i + 2] : members[i] == c);
    if (range) i += 2;
  }
  return found != negated;
}

/// Characters of the pattern, which is not empty and begins with no `*`, that match c; 0: it does not match.
std::size_t match_one(std::string_view pattern, char c) {
  if (pattern[0] == '?') return 1;
  const std::size_t set = pattern[0] == '[' ? set_length(pattern) : 0;
  if (set > 0) return in_set(pattern.substr(0, set), c) ? set : 0;
  return pattern[0] == c ? 1 : 0;
}

}  // namespace

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  while (std::abs(bytes) >= 1024 && u + 1 < units.size()) bytes /= 1024, ++u;
  return u == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[u]);
}

std::string format_count(double count) {
  if (count >= 1e9) return fmt::format("{:.2f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f}M", count / 1e6);
  if (count >= 1e3) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

std::string format_duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s >= 3600) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(3, word.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t d = edit_distance(word, candidate);
    if (d < best_distance) best = candidate, best_distance = d;
  }
  return best;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // Only the last `*` met needs to be tried again with a longer run: what lies before it has matched.
  std::size_t p = 0, t = 0, after_star = std::string_view::npos, run_end = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p, run_end = t;
      continue;
    }
    const std::size_t matched = p < pattern.size() ? match_one(pattern.substr(p), text[t]) : 0;
    if (matched > 0) {
      p += matched, ++t;
    } else if (after_star != std::string_view::npos) {
      p = after_star, t = ++run_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ztrain
