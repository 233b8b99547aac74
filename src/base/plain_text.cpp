#include "base/plain_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.hpp"

namespace ztrain {
namespace {

bool is_control(std::uint32_t c) {
  const bool directs_writing = c == 0x200e || c == 0x200f || c == 0x61c || (c >= 0x2028 && c <= 0x202e) ||
                               (c >= 0x2066 && c <= 0x2069);
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfeff || directs_writing;
}

/// Returns the bytes of the plain character with which the text begins, or 0.
std::size_t plain_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t bytes = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes == 0 || first > 0xf4 || bytes > text.size()) return 0;
  std::uint32_t c = bytes == 1 ? first : first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    c = c << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && c < 0x800) || (bytes == 4 && c < 0x10000);
  const bool no_character = c > 0x10ffff || (c >= 0xd800 && c < 0xe000);
  return overlong || no_character || is_control(c) ? 0 : bytes;
}

using namespace std::string_view_literals;

/// Byte-order marks and their encodings. The longer marks come first.
struct MarkRow {
  std::string_view mark, encoding;
};
constexpr std::array marks{MarkRow{"\xff\xfe\0\0"sv, "UTF-32"}, MarkRow{"\0\0\xfe\xff"sv, "UTF-32"},
                           MarkRow{"\xff\xfe"sv, "UTF-16"}, MarkRow{"\xfe\xff"sv, "UTF-16"}};

/// Returns whether the bytes from `at` on are two ASCII characters of 16 bits, of which every second byte is
/// zero.
bool is_two_of_16_bits(std::string_view bytes, std::size_t at) {
  const auto is_ascii = [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; };
  return bytes.size() >= 4 && is_ascii(bytes[at]) && is_ascii(bytes[at + 2]) && bytes[1 - at] == 0 &&
         bytes[3 - at] == 0;
}

/// `kept` are characters that stay though they are not plain.
std::string escaped(std::string_view text, std::string_view kept, std::size_t most) {
  std::string result;
  while (!text.empty()) {
    if (result.size() >= most) return result + "...";
    const bool stays = kept.find(text[0]) != std::string_view::npos;
    const std::size_t bytes = stays ? 1 : plain_character(text);
    if (bytes == 0)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else
      result += text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return result;
}

}  // namespace

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = plain_character(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string_view wide_encoding(std::string_view bytes) {
  const auto* row =
      std::find_if(marks.begin(), marks.end(), [&](const MarkRow& m) { return bytes.starts_with(m.mark); });
  if (row != marks.end()) return row->encoding;
  if (is_two_of_16_bits(bytes, 0)) return "UTF-16LE";
  return is_two_of_16_bits(bytes, 1) ? "UTF-16BE" : "";
}

std::string_view utf8_text(std::string_view bytes, const std::string& where) {
  const std::string_view wide = wide_encoding(bytes);
  REQUIRE(wide.empty(),
          "{}: is text in {}, and must be UTF-8: save it as that, or convert it (iconv -f {} -t UTF-8)",
          where, wide, wide);
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return bytes.starts_with(mark) ? bytes.substr(mark.size()) : bytes;
}

std::string printable(std::string_view text, std::size_t most) {
  return escaped(text, "", most);
}

std::string printable_lines(std::string_view text) {
  return escaped(text, "\n\t", std::string_view::npos);
}

std::string without_control(std::string_view bytes) {
  std::string result;
  for (const char c : bytes) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    result += control ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return result;
}

}  // namespace ztrain
