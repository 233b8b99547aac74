#pragma once
// Numbers and words for people.

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ztrain {

/// A number of any type.
struct Amount {
  double value;
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Amount(T x) : value(static_cast<double>(x)) {}
};

/// "1.50 GiB"
std::string format_bytes(Amount bytes);

/// "1.50 GiB of this rank's 4.00 GiB read"
std::string share_of(Amount done, Amount total, std::string_view what);

/// "1.50 GB": by thousands, as vendors count
std::string format_decimal_bytes(Amount bytes);

/// "124.4M", "8.03B"
std::string format_count(Amount count);

/// "1 rank", "8 ranks"
std::string count_text(std::int64_t count, std::string_view one);

/// "3.5 days", "1h 02m", "3m 20s", "12s"
std::string format_duration(double seconds);

/// The candidate with the smallest edit distance to word (ties: the first), or "" when none is near: beyond
/// one edit, and a third of the word.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns the text as a cell of a Markdown table, in which "|" is written "\|".
std::string markdown_cell(std::string_view text);

/// Shell-style, the whole text: * stands for any run of characters (dots and slashes too), ? for one, [a-z]
/// for one of a set and [!a-z] for one outside it.
bool glob_match(std::string_view pattern, std::string_view text);

/// The same for names of parts joined by dots: no wildcard stands for a dot.
bool glob_match_parts(std::string_view pattern, std::string_view text);

}  // namespace ztrain
