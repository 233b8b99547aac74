#include "base/text.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

namespace ztrain {

namespace {

constexpr std::size_t longest_name = 200;  ///< a longer word is not a typing slip

/// Returns the number of characters to insert, leave out, replace, or exchange with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

/// Formats bytes in the largest unit of which there is at least one.
std::string scaled(double bytes, double step, const std::array<const char*, 5>& units) {
  std::size_t u = 0;
  while (std::abs(bytes) >= step && u + 1 < units.size()) bytes /= step, ++u;
  return u == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[u]);
}

/// Neighbouring lines of a text behind the same number of spaces.
struct Run {
  std::size_t indent;
  std::vector<std::string_view> lines;
};

std::vector<Run> runs_of(std::string_view text) {
  std::vector<Run> runs;
  for (std::size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
    end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end == text.npos ? end : end - begin);
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (runs.empty() || runs.back().indent != indent) runs.push_back({indent, {}});
    runs.back().lines.push_back(line);
  }
  return runs;
}

}  // namespace

std::string format_bytes(Amount bytes) {
  return scaled(bytes.value, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string share_of(Amount done, Amount total, std::string_view what) {
  return fmt::format("{} of this rank's {} {}", format_bytes(done), format_bytes(total), what);
}

std::string format_decimal_bytes(Amount bytes) {
  return scaled(bytes.value, 1000, {"B", "kB", "MB", "GB", "TB"});
}

std::string format_count(Amount count) {
  const double n = count.value;
  if (n >= 1e9) return fmt::format("{:.2f}B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f}M", n / 1e6);
  if (n >= 1e3) return fmt::format("{:.1f}k", n / 1e3);
  return fmt::format("{:.0f}", n);
}

std::string count_text(std::int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string format_duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s >= 3 * 86400) return fmt::format("{:.1f} days", seconds / 86400);
  if (s >= 3600) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > longest_name) return best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t d = edit_distance(word, candidate);
    if (d < best_distance) best = candidate, best_distance = d;
  }
  return best;
}

std::string list_lines(const std::vector<std::string>& items, int indent) {
  std::string text;
  for (const std::string& item : items) text += fmt::format("\n{:{}}{}", "", indent, item);
  return text;
}

std::string with_short_lists(std::string_view message) {
  constexpr std::size_t most = 12, fewest = 4;  // lines of all lists together, and of each
  const std::vector<Run> runs = runs_of(message);
  const auto lists = static_cast<std::size_t>(std::ranges::count_if(
      runs, [](const Run& run) { return run.indent >= 2 && run.lines.size() > fewest; }));
  const std::size_t share = std::max(fewest, most / std::max<std::size_t>(1, lists));
  std::string text;
  for (const auto& [indent, lines] : runs) {
    const std::size_t shown = indent >= 2 && lines.size() > share ? share - 1 : lines.size();
    for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}\n", lines[i]);
    if (shown < lines.size())
      text += fmt::format("{:{}}and {} more, which the same command with --all names\n", "", indent,
                          lines.size() - shown);
  }
  text.pop_back();
  return text;
}

std::string markdown_cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  return ::fnmatch(std::string(pattern).c_str(), std::string(text).c_str(), 0) == 0;
}

bool glob_match_parts(std::string_view pattern, std::string_view text) {
  const auto as_path = [](std::string_view name) {
    std::string path(name);
    std::replace(path.begin(), path.end(), '.', '/');
    return path;
  };
  return ::fnmatch(as_path(pattern).c_str(), as_path(text).c_str(), FNM_PATHNAME) == 0;
}

Table::Table(std::vector<std::string> header) {
  REQUIRE(!header.empty(), "a table needs a column");
  rows_.push_back(std::move(header));
  rule();
}

void Table::row(std::vector<std::string> cells) {
  REQUIRE(!cells.empty() && cells.size() <= rows_.front().size(),
          "a row of {} cells in a table of {} columns", cells.size(), rows_.front().size());
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

void Table::rule() {
  rows_.emplace_back();
}

std::string Table::text(int indent) const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& cells : rows_)
    for (std::size_t c = 0; c < cells.size(); ++c) width[c] = std::max(width[c], cells[c].size());
  std::size_t total = 2 * (width.size() - 1);
  for (const std::size_t w : width) total += w;
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string out;
  for (const auto& cells : rows_) {
    std::string line = cells.empty() ? std::string(total, '-') : fmt::format("{:<{}}", cells[0], width[0]);
    for (std::size_t c = 1; c < cells.size(); ++c) line += fmt::format("  {:>{}}", cells[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += margin + line + '\n';
  }
  return out;
}

}  // namespace ztrain
