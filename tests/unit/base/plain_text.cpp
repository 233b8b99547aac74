// Text from outside: what counts as text, and how the rest is printed.
#include "base/plain_text.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ztrain::plain_text_test
