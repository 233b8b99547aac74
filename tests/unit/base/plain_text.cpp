// Text from outside: what counts as text, and how the rest is printed.
#include "base/plain_text.hpp"

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace ztrain::plain_text_test {
namespace {

TEST(PlainText, IsUtf8WithoutControlCharacters) {
  for (const char* text : {"", "runs/a b", "J\xc3\xbcrgen", "\xe2\x82\xac", "\xf0\x9f\x9a\x80", "~"})
    EXPECT_TRUE(is_plain_text(text)) << text;
  for (const char* text :
       {"\xff", "a\xc3", "J\xfcrgen", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf0\x80\x80\xaf", "\x80", "a\nb", "\x1b[31m", "\x7f",
        "\xc2\x9b"
        "31m",
        "\xe2\x80\xae"
        "abc",
        "\xef\xbb\xbfx"})
    EXPECT_FALSE(is_plain_text(text)) << printable(text);
  EXPECT_FALSE(is_plain_text(std::string_view("a\0b", 3)));
}

TEST(PlainText, LinesStayLines) {
  EXPECT_EQ(printable_lines("a\tb\nc\x1b[0m\xff\n"), "a\tb\nc\\x1b[0m\\xff\n");
}

TEST(PlainText, IsPrintedWithTheRestAsBytes) {
  EXPECT_EQ(printable("J\xc3\xbcrgen"), "J\xc3\xbcrgen");
  EXPECT_EQ(printable("J\xfcrgen\n"), "J\\xfcrgen\\x0a");
  EXPECT_EQ(printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "a"),
            "\\xe2\\x80\\xaea");
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
  EXPECT_EQ(printable("abcd", 4), "abcd");
  EXPECT_EQ(printable("abc\xe2\x82\xac"
                      "d",
                      4),
            "abc\xe2\x82\xac...");
}

TEST(PlainText, OfFilesIsUtf8WithOrWithoutAMark) {
  using namespace std::string_view_literals;
  const auto error = [](std::string_view bytes) {
    return test::error_of([&] { utf8_text(bytes, "a.toml"); });
  };
  EXPECT_EQ(utf8_text("\xef\xbb\xbf[run]", "a.toml"), "[run]");
  for (const std::string_view text : {""sv, "a"sv, "[run]"sv, "\xff"sv, "a\0"sv, "\0\0\0\0"sv, "a\0\0\0"sv})
    EXPECT_EQ(utf8_text(text, "a.toml"), text) << printable(text);
  EXPECT_EQ(error("\xff\xfe[\0"sv),
            "a.toml: is text in UTF-16, and must be UTF-8: save it as that, or convert it (iconv -f UTF-16 "
            "-t UTF-8)");
  EXPECT_NE(error("\xfe\xff\0["sv).find("-f UTF-16 "), std::string::npos);
  EXPECT_NE(error("\xff\xfe\0\0[\0\0\0"sv).find("-f UTF-32 "), std::string::npos);
  EXPECT_NE(error("\0\0\xfe\xff\0\0\0["sv).find("-f UTF-32 "), std::string::npos);
  EXPECT_NE(error("[\0r\0u\0"sv).find("-f UTF-16LE "), std::string::npos);
  EXPECT_NE(error("\0[\0r\0u"sv).find("-f UTF-16BE "), std::string::npos);
}

}  // namespace
}  // namespace ztrain::plain_text_test
