#pragma once
// Text from outside: names of files, words of the command line, contents of files. It may be no text at all,
// or hold bytes that a terminal takes for commands.

#include <string>
#include <string_view>

namespace ztrain {

/// Is this valid UTF-8 without control characters? Those that turn the direction of writing count as such.
bool is_plain_text(std::string_view text);

/// The text with every byte of what is_plain_text() refuses as \xNN, for messages. Beyond `most` bytes it is
/// cut, and ends with "...".
std::string printable(std::string_view text, std::size_t most = std::string_view::npos);

/// The text of a file, without the mark that editors put before UTF-8. Throws Error that begins with `where`
/// and names the encoding where it is of characters of 16 or 32 bits, which some editors and shells write.
std::string_view utf8_text(std::string_view bytes, const std::string& where);

/// That encoding, as iconv calls it; "" where the bytes do not begin as such a text.
std::string_view wide_encoding(std::string_view bytes);

constexpr std::size_t most_quoted = 120;  ///< bytes of a value or name in a message

/// A whole text that holds such names: the same, but lines stay lines and tabs tabs.
std::string printable_lines(std::string_view text);

/// Part of a text that comes piece by piece, in which a character may be cut: ASCII's control characters as
/// \xNN, but for ends of lines and tabs; all else as it is.
std::string without_control(std::string_view bytes);

}  // namespace ztrain
