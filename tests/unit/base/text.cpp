// Patterns of names.
#include "base/text.hpp"

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

}  // namespace
}  // namespace ztrain::text_test
