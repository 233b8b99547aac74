#pragma once
// Formats numbers, words and tables for people.

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ztrain {

/// A number of any arithmetic type.
struct Amount {
  double value;
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Amount(T x) : value(static_cast<double>(x)) {}
};

/// Returns text such as "1.50 GiB".
std::string format_bytes(Amount bytes);

/// Returns text such as "1.50 GiB of this rank's 4.00 GiB read".
std::string share_of(Amount done, Amount total, std::string_view what);

/// Returns text such as "1.50 GB", in powers of 1000, as vendors count.
std::string format_decimal_bytes(Amount bytes);

/// Returns text such as "124.4M" or "8.03B".
std::string format_count(Amount count);

/// Returns text such as "1 rank" or "8 ranks".
std::string count_text(std::int64_t count, std::string_view one);

/// Returns text such as "3.5 days", "1h 02m", "3m 20s" or "12s".
std::string format_duration(double seconds);

/// Returns the candidate with the smallest edit distance to word (the first of several), or "" if none is
/// within one edit or a third of the word.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns the text as a cell of a Markdown table, in which "|" is written "\|".
std::string markdown_cell(std::string_view text);

/// Matches the whole text as a shell does: * is any run of characters (dots and slashes too), ? any one,
/// [a-z] one of a set and [!a-z] one outside it.
bool glob_match(std::string_view pattern, std::string_view text);

/// Matches names of parts joined by dots in the same way, but no wildcard matches a dot.
bool glob_match_parts(std::string_view pattern, std::string_view text);

/// Returns the text as lines of a list in a message: each on a line of its own, behind `indent` spaces.
std::string list_lines(const std::vector<std::string>& items, int indent);

/// Returns a message whose lists have a dozen lines in all, and say that --all names the rest. A list is
/// neighbouring lines behind the same number of spaces, two or more.
std::string with_short_lists(std::string_view message);

/// Text in aligned columns: the first to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  /// Adds a row. Missing cells are empty. Throws Error if there are more cells than columns.
  void row(std::vector<std::string> cells);
  /// Adds a horizontal line, as before a sum.
  void rule();
  /// Returns lines, each indented by this many spaces and ended by a newline.
  std::string text(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;  ///< an empty row is a horizontal line
};

}  // namespace ztrain
