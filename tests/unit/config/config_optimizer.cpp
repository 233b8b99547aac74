// The optimizer's keys, its groups of parameters, and how the groups are written.
#include <gtest/gtest.h>

#include "config/parameter_groups.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_optimizer_test {
namespace {

Optimizer optimizer_of(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return deck_of("[optimizer]\n" + lines, overrides).optimizer;
}
std::string optimizer_error(const std::string& lines) {
  return deck_error("[optimizer]\n" + lines);
}

TEST(OptimizerDeck, Names) {
  for (const std::string name : {"adamw", "adam", "sgd", "lion", "adamw_8bit", "muon"}) {
    EXPECT_EQ(optimizer_of("name = \"" + name + "\"\n").name, name);
  }
  EXPECT_EQ(
      optimizer_error("name = \"adamw8bit\"\n"),
      "input.toml:8: optimizer.name = \"adamw8bit\" is not legal: expected one of adamw, adam, sgd, lion, "
      "adamw_8bit, muon, onebit_adam; nearest legal: adamw_8bit");
}

TEST(OptimizerDeck, NesterovNeedsMomentum) {
  EXPECT_EQ(optimizer_of("").momentum, 0.9);
  EXPECT_TRUE(optimizer_of("name = \"sgd\"\nnesterov = true\n").nesterov);
  EXPECT_EQ(optimizer_error("name = \"sgd\"\nnesterov = true\nmomentum = 0\n"),
            "input.toml:9: optimizer.nesterov = true needs a momentum, and optimizer.momentum = 0; nearest "
            "legal: false");
  EXPECT_EQ(optimizer_error("name = \"sgd\"\nmomentum = 0\n"), "no error");
}

TEST(OptimizerDeck, MuonHasAMomentumOfItsOwn) {
  const Optimizer silent = optimizer_of("name = \"muon\"\n");
  EXPECT_TRUE(silent.momentum == 0.95 && silent.nesterov && silent.muon_scale == "rms");
  const Optimizer given =
      optimizer_of("name = \"muon\"\nmomentum = 0.9\nnesterov = false\nmuon_scale = \"original\"\n");
  EXPECT_TRUE(given.momentum == 0.9 && !given.nesterov && given.muon_scale == "spectral");
  const Deck d = deck_of("[optimizer]\nname = \"muon\"\n");
  EXPECT_EQ(deck_hash(parse_deck(resolved_toml(d), "resolved.toml")), deck_hash(d));
}

TEST(OptimizerDeck, EightBitMomentsAreNotChosen) {
  const std::string eight = "name = \"adamw_8bit\"\n";
  EXPECT_EQ(optimizer_error(eight + "[precision]\nmoments = \"fp32\"\n"),
            "input.toml:10: precision.moments = \"fp32\" does not go with optimizer.name = \"adamw_8bit\" "
            "(input.toml:8), whose moments have 8 bits; leave it out");
  // So the resolved deck, which loads again, shows the key as a comment.
  const Deck d = deck_of("[optimizer]\n" + eight);
  const std::string text = resolved_toml(d);
  EXPECT_NE(text.find("\n#moments = \"fp32\"  # not used: the moments of adamw_8bit have 8 bits\n"),
            std::string::npos)
      << text;
  const Deck again = parse_deck(text, "resolved.toml");
  EXPECT_EQ(deck_hash(again), deck_hash(d));
  EXPECT_TRUE(forbidden(changes_on_resume(d, text)).empty());
  EXPECT_EQ(forbidden(changes_on_resume(deck_of(), text)).size(), 1u) << "the optimizer's name";
}

TEST(Groups, AreReadFromTables) {
  const Optimizer o = optimizer_of(
      "groups = [{match = \"model.embed_tokens.*\", lr_scale = 0.1}, {match = \"*.mlp.*\", weight_decay = "
      "0}]\n");
  ASSERT_EQ(o.groups.size(), 2u);
  EXPECT_EQ(o.groups[0].match, "model.embed_tokens.*");
  EXPECT_EQ(o.groups[0].lr_scale, 0.1);
  EXPECT_FALSE(o.groups[0].weight_decay.has_value());
  EXPECT_EQ(o.groups[1].lr_scale, 1);
  EXPECT_EQ(o.groups[1].weight_decay, 0.0);
  const Optimizer headed = optimizer_of("[[optimizer.groups]]\nmatch = \"lm_head.*\"\nlr_scale = 2\n");
  ASSERT_EQ(headed.groups.size(), 1u);
  EXPECT_EQ(headed.groups[0].lr_scale, 2);
  const Optimizer given =
      optimizer_of("groups = [{match = \"*\"}]\n",
                   {"--optimizer.groups=[{match=\"model.embed_tokens.*\", lr_scale=0.1}]"});
  ASSERT_EQ(given.groups.size(), 1u);
  EXPECT_EQ(given.groups[0].match, "model.embed_tokens.*");
}

TEST(Groups, MistakesNameTheRow) {
  EXPECT_EQ(optimizer_error("groups = [{match = \"a\"}, {match = \"b\", lrscale = 2}]\n"),
            "input.toml:8: optimizer.groups[1]: unknown key 'lrscale'; did you mean 'lr_scale'?");
  EXPECT_EQ(optimizer_error("groups = [{lr_scale = 2}]\n"),
            "input.toml:8: optimizer.groups[0]: match is missing: the pattern of the parameters' names");
  EXPECT_EQ(optimizer_error("groups = [{match = \"a\", lr_scale = -1}]\n"),
            "input.toml:8: optimizer.groups[0].lr_scale = -1 is not legal: expected a number, 0 or more");
  EXPECT_EQ(
      optimizer_error("groups = [{match = \"a\", weight_decay = \"no\"}]\n"),
      "input.toml:8: optimizer.groups[0].weight_decay = \"no\" is not legal: expected a number, 0 or more");
  EXPECT_EQ(optimizer_error("groups = [{match = \"a\", lr_scale = inf}]\n"),
            "input.toml:8: optimizer.groups[0].lr_scale = inf is not legal: expected a number, 0 or more");
  EXPECT_EQ(optimizer_error("groups = [{match = \"\"}]\n"),
            "input.toml:8: optimizer.groups[0].match = \"\" is not legal: expected a pattern of parameter "
            "names, such as \"model.embed_tokens.*\"");
  EXPECT_EQ(optimizer_error("groups = [\"a\"]\n"),
            "input.toml:8: optimizer.groups[0] = \"a\" is not legal: expected a table {match, lr_scale, "
            "weight_decay}");
  EXPECT_EQ(
      optimizer_error("groups = {match = \"a\"}\n"),
      "input.toml:8: optimizer.groups = {match = \"a\"} is not legal: expected a list of tables {match, "
      "lr_scale, weight_decay}");
}

TEST(Groups, SurviveTheResolvedDeck) {
  const Deck d = deck_of(
      "[optimizer]\nno_decay = [\"*.lm_head.*\"]\n"
      "groups = [{match = 'a\"b', lr_scale = 0.3333333333333333}, {match = \"*\", weight_decay = 0.01}]\n");
  const Deck again = parse_deck(resolved_toml(d), "resolved.toml");
  EXPECT_EQ(deck_hash(again), deck_hash(d));
  ASSERT_EQ(again.optimizer.groups.size(), 2u);
  EXPECT_EQ(again.optimizer.groups[0].match, "a\"b");
  EXPECT_EQ(again.optimizer.groups[0].lr_scale, 0.3333333333333333);
  EXPECT_FALSE(again.optimizer.groups[0].weight_decay.has_value());
  EXPECT_EQ(again.optimizer.groups[1].weight_decay, 0.01);
  EXPECT_NE(deck_hash(d), deck_hash(deck_of()));
  EXPECT_EQ(forbidden(changes_on_resume(d, resolved_toml(deck_of()))).size(), 2u);
}

TEST(Groups, TheLastThatMatchesCounts) {
  const Optimizer o = optimizer_of(
      "weight_decay = 0.1\nno_decay = [\"lm_head.*\"]\ngroups = [{match = \"*.mlp.*\", lr_scale = 0.5, "
      "weight_decay = 0.3}, {match = \"model.layers.0.*\", lr_scale = 2}, {match = \"lm_head.*\", "
      "weight_decay = 0.7}]\n");
  const auto expect = [&](const char* name, bool decayed, double lr_scale, double weight_decay) {
    const ParameterSettings s = settings_of(o, name, decayed);
    EXPECT_EQ(s.lr_scale, lr_scale) << name;
    EXPECT_EQ(s.weight_decay, weight_decay) << name;
  };
  expect("model.layers.1.mlp.up_proj.weight", true, 0.5, 0.3);
  expect("model.layers.0.mlp.up_proj.weight", true, 2, 0.1);
  expect("model.layers.0.input_layernorm.weight", false, 2, 0);
  expect("model.embed_tokens.weight", true, 1, 0.1);
  expect("model.norm.weight", false, 1, 0);
  expect("lm_head.weight", true, 1, 0.7);
  EXPECT_EQ(
      settings_of(optimizer_of("weight_decay = 0.1\nno_decay = [\"lm_head.*\"]\n"), "lm_head.weight", true)
          .weight_decay,
      0);
}

TEST(NoDecay, RefusesEmptyPatterns) {
  EXPECT_EQ(optimizer_error("no_decay = [\"\"]\n"),
            "input.toml:8: optimizer.no_decay holds an empty pattern, which matches no name; leave it out");
}

}  // namespace
}  // namespace ztrain::config::config_optimizer_test
