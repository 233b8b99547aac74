#pragma once
// Handles text from outside: names of files, words of the command line, contents of files. It may not be text
// at all, or hold bytes that a terminal takes for commands.

#include <string>
#include <string_view>

namespace ztrain {

/// Returns whether this is valid UTF-8 without control characters. Those that change the direction of writing
/// count as such.
bool is_plain_text(std::string_view text);

/// Returns the text for messages, with every byte that is_plain_text() refuses as \xNN. A text of more than
/// `most` bytes is cut, and ends with "...".
std::string printable(std::string_view text, std::size_t most = std::string_view::npos);

/// Returns the text of a file without a byte-order mark of UTF-8. Throws Error that begins with `where` and
/// names the encoding if characters have 16 or 32 bits, as some editors and shells write.
std::string_view utf8_text(std::string_view bytes, const std::string& where);

/// Returns that encoding as iconv names it; "" if the bytes do not begin as such a text.
std::string_view wide_encoding(std::string_view bytes);

constexpr std::size_t most_quoted = 120;  ///< bytes of a value or name in a message

/// Does the same for a whole text, in which lines and tabs stay.
std::string printable_lines(std::string_view text);

/// Does the same for part of a text, in which a character may be cut: writes ASCII's control characters as
/// \xNN, except newlines and tabs.
std::string without_control(std::string_view bytes);

}  // namespace ztrain
