// Patterns of names, and lists in messages.
#include "base/text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ztrain::text_test {
namespace {

TEST(Glob, StarsMatchAnyRunAndTheWholeTextCounts) {
  EXPECT_TRUE(glob_match("model.layers.*.mlp", "model.layers.11.mlp"));
  EXPECT_TRUE(glob_match("*.mlp.*", "model.layers.11.mlp.up_proj.weight"));
  EXPECT_TRUE(glob_match("model.norm.weight", "model.norm.weight"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a**b", "ab"));
  EXPECT_TRUE(glob_match("*ab*ab", "abcababab"));
  EXPECT_FALSE(glob_match("model.layers.*.mlp", "model.layers.11.mlp.up_proj"));
  EXPECT_FALSE(glob_match("layers.*", "model.layers.0"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("a*b*c", "abab"));
  EXPECT_FALSE(glob_match("a.b", "axb"));
}

TEST(Glob, OneCharacterAndSets) {
  EXPECT_TRUE(glob_match("layers.?.mlp", "layers.3.mlp"));
  EXPECT_FALSE(glob_match("layers.?.mlp", "layers.13.mlp"));
  EXPECT_FALSE(glob_match("a?", "a"));
  EXPECT_TRUE(glob_match("layers.[0-3].*", "layers.2.x"));
  EXPECT_FALSE(glob_match("layers.[0-3].*", "layers.4.x"));
  EXPECT_TRUE(glob_match("[qk]_proj", "q_proj"));
  EXPECT_FALSE(glob_match("[!qk]_proj", "q_proj"));
  EXPECT_TRUE(glob_match("[!qk]_proj", "v_proj"));
  EXPECT_TRUE(glob_match("[]x]", "]"));
  EXPECT_TRUE(glob_match("[a-]", "-"));
  EXPECT_TRUE(glob_match("*[0-9]", "layer12"));
}

TEST(Glob, ASetThatIsNeverClosedStandsForItself) {
  EXPECT_TRUE(glob_match("a[b", "a[b"));
  EXPECT_FALSE(glob_match("a[b", "ab"));
  EXPECT_TRUE(glob_match("*[", "x["));
}

TEST(ShortLists, HaveADozenLinesInAll) {
  const auto list = [](int count, int indent) {
    std::vector<std::string> items;
    for (int i = 0; i < count; ++i) items.push_back(fmt::format("a{}", i));
    return list_lines(items, indent);
  };
  const std::string whole = "12 errors:" + list(12, 2) + "\nadvice";
  EXPECT_EQ(with_short_lists(whole), whole);
  EXPECT_EQ(with_short_lists("13 errors:" + list(13, 2) + "\nadvice"),
            "13 errors:" + list(11, 2) + "\n  and 2 more, which the same command with --all names\nadvice");
  EXPECT_EQ(with_short_lists("lacks:\n  3 a:" + list(13, 4) + "\n  4 b:" + list(6, 4)),
            "lacks:\n  3 a:" + list(5, 4) +
                "\n    and 8 more, which the same command with --all names\n  4 b:" + list(6, 4));
  EXPECT_EQ(with_short_lists("no list" + list(20, 0)), "no list" + list(20, 0));
}

}  // namespace
}  // namespace ztrain::text_test
