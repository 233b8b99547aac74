#pragma once
// Numbers and words for people.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ztrain {

/// "1.50 GiB"
std::string format_bytes(double bytes);

/// "1.50 GB": by thousands, as vendors count
std::string format_decimal_bytes(double bytes);

/// "124.4M", "8.03B"
std::string format_count(double count);

/// "1 rank", "8 ranks"
std::string count_text(std::int64_t count, std::string_view one);

/// "1h 02m", "3m 20s", "12s"
std::string format_duration(double seconds);

/// The candidate with the smallest edit distance to word (ties: the first), or "" when none is near: beyond
/// one edit, and a third of the word.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Shell-style, the whole text: * stands for any run of characters (dots and slashes too), ? for one, [a-z]
/// for one of a set and [!a-z] for one outside it.
bool glob_match(std::string_view pattern, std::string_view text);

/// The same for names of parts joined by dots: no wildcard stands for a dot.
bool glob_match_parts(std::string_view pattern, std::string_view text);

}  // namespace ztrain
