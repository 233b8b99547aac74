// When parameters are gathered, what is a unit, and what is recomputed.
#include <gtest/gtest.h>

#include "config/recompute_pieces.hpp"
#include "config/strategy.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_sharding_test {
namespace {

Sharding sharding_of(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return deck_of("[sharding]\n" + lines, overrides).sharding;
}
std::string sharding_error(const std::string& lines) {
  return deck_error("[sharding]\n" + lines);
}

TEST(Strategies, EachRowIsALegalValueWithItsAliases) {
  for (const Strategy& s : strategies()) {
    const std::string name(s.name);
    EXPECT_EQ(sharding_of("strategy = \"" + name + "\"\n").strategy, name);
    for (const auto alias : s.aliases)
      EXPECT_EQ(sharding_of("strategy = \"" + std::string(alias) + "\"\n").strategy, name) << alias;
    EXPECT_EQ(find_strategy(name).name, s.name);
    EXPECT_NE(inputs_markdown().find(std::string(s.doc)), std::string::npos) << name;
  }
  EXPECT_EQ(error_of([] { find_strategy("zero4"); }),
            "'zero4' is not a sharding strategy; known: NO_SHARD, zero1, zero2, SHARD_GRAD_OP, FULL_SHARD, "
            "HYBRID_SHARD");
}

/// A deck of a mixture of 8 experts with these keys of [mesh].
std::string mixture(const std::string& mesh, const std::string& model = "family = \"mixtral\"") {
  return "[model]\n" + model + "\n[mesh]\n" + mesh + "\n";
}

TEST(Experts, TheirRanksAreSomeOfThoseOfShards) {
  const Deck d = on_ranks(mixture("expert = 4"), 8);
  EXPECT_EQ(d.mesh.shard, 8);
  EXPECT_EQ(data_parallel_degree(d), 8);
  struct Refused {
    std::string lines;
    const char* message;
  };
  const Refused refused[] = {
      {mixture("expert = 0\nshard = 2"), "mesh.expert = 0 is not legal"},
      {mixture("expert = 3"), "mesh.expert = 3 does not divide model.num_experts (8); nearest legal: 2 or 4"},
      {mixture("expert = 4\nreplicate = 4"), "mesh.expert = 4 does not divide mesh.shard (2)"},
      {mixture("expert = 4\ntensor = 4"),
       "mesh.expert x mesh.tensor (4 x 4) does not divide model.num_experts (8)"},
      {mixture("expert = 2\ntensor = 2") + "[tensor]\nsequence_parallel = false\n",
       "set tensor.sequence_parallel = true, or mesh.expert = 1"},
      {mixture("expert = 2\nshard = 2\ntensor = -1") + "[tensor]\nsequence_parallel = false\n",
       "set tensor.sequence_parallel = true, or mesh.expert = 1"},
      {mixture("expert = 4\nshard = 4\nreplicate = 1\ntensor = -1", "family = \"mixtral\"\nnum_experts = 12"),
       "mesh.expert x mesh.tensor (4 x 2) does not divide model.num_experts (12)"},
      {mixture("expert = 4") + "[sharding]\nreshard_after_forward = 2\n",
       "sharding.reshard_after_forward (2) is not a multiple of mesh.expert (4)"},
      {"[mesh]\nexpert = 2\n", "mesh.expert = 2 is of experts, and models of family \"llama\" have none"}};
  for (const auto& [lines, message] : refused) {
    const std::string told = rank_error(lines, 8);
    EXPECT_NE(told.find(message), std::string::npos) << lines << told;
  }
}

TEST(Experts, AFamilyThatHasThemIsNotSaidToHaveNone) {
  const std::string told = deck_error(mixture("expert = 4", "family = \"qwen3_moe\"\nnum_experts = 0"));
  EXPECT_NE(told.find("model.num_experts = 0, but layers of \"qwen3_moe\" have experts"), std::string::npos)
      << told;
  EXPECT_EQ(told.find("have none"), std::string::npos) << told;
}

TEST(Experts, NearestDegreesDivideTheShardsAndTheExperts) {
  struct Nearest {
    std::string lines;
    int ranks;
    const char* legal;
  };
  const std::string six = "family = \"mixtral\"\nnum_experts = 6";
  const Nearest rows[] = {
      {mixture("expert = 6", six), 8,
       "mesh.shard (8), some of whose ranks share the experts; "
       "nearest legal: 2"},
      {mixture("expert = 4"), 6, "; nearest legal: 2"},
      {mixture("expert = 4\nshard = 8", six), 8, "; nearest legal: 2"},
      {mixture("expert = 3\nshard = 2"), 2, "; nearest legal: 2"},
      {mixture("expert = 4\ntensor = 4"), 16, "; nearest legal: mesh.expert = 2"},
      {mixture("expert = 8\nshard = 4\ntensor = 1"), 4, "; nearest legal: 4"},
      {mixture("expert = 4\nshard = 8\ntensor = 4", six), 32, "; nearest legal: mesh.expert = 1"},
      {"[mesh]\nexpert = 4\nshard = 6\n", 6, "have none; nearest legal: 1"}};
  for (const auto& [lines, ranks, legal] : rows) {
    const std::string told = rank_error(lines, ranks);
    EXPECT_TRUE(told.ends_with(legal)) << lines << told;
  }
  const std::string without_ranks = deck_error(mixture("expert = 4\nshard = 6"));
  EXPECT_TRUE(
      without_ranks.ends_with("does not divide mesh.shard (6), some of whose ranks share the experts; "
                              "nearest legal: 2"))
      << without_ranks;
}

TEST(Reshard, TakesWordsBooleansAndNumbers) {
  const auto stored = [](const std::string& value) {
    return sharding_of("reshard_after_forward = " + value + "\n").reshard_after_forward;
  };
  EXPECT_EQ(sharding_of("").reshard_after_forward, "auto");
  EXPECT_EQ(stored("\"auto\""), "auto");
  EXPECT_EQ(stored("true"), "true");
  EXPECT_EQ(stored("\"false\""), "false");
  EXPECT_EQ(stored("4"), "4");
  EXPECT_EQ(stored("\"8\""), "8");
  for (const std::string value : {"auto", "true", "false", "2", "16"}) {
    EXPECT_EQ(sharding_of("", {"--sharding.reshard_after_forward=" + value}).reshard_after_forward, value);
  }
}

TEST(Reshard, RefusesOtherValues) {
  const std::string legal = "expected one of auto, true, false, or an integer, 2 or more";
  EXPECT_EQ(sharding_error("reshard_after_forward = 1\n"),
            "input.toml:8: sharding.reshard_after_forward = 1 is not legal: " + legal + "; nearest legal: 2");
  EXPECT_EQ(
      sharding_error("reshard_after_forward = \"-3\"\n"),
      "input.toml:8: sharding.reshard_after_forward = \"-3\" is not legal: " + legal + "; nearest legal: 2");
  EXPECT_EQ(sharding_error("reshard_after_forward = \"flase\"\n"),
            "input.toml:8: sharding.reshard_after_forward = \"flase\" is not legal: " + legal +
                "; nearest legal: false");
  EXPECT_EQ(sharding_error("reshard_after_forward = 2.5\n"),
            "input.toml:8: sharding.reshard_after_forward = 2.5 is not legal: " + legal);
  EXPECT_EQ(sharding_error("reshard_after_forward = \"99999999999999999999\"\n").find("no error"),
            std::string::npos);
  EXPECT_EQ(sharding_error("strategy = true\n").find("no error"), std::string::npos);
}

TEST(Reshard, GroupsDivideTheShardAxis) {
  const std::string four = "[sharding]\nreshard_after_forward = 4\n";
  EXPECT_EQ(reshard_group(on_ranks(four, 8)), 4);
  EXPECT_TRUE(reshard_after_forward(on_ranks(four, 8)));
  EXPECT_EQ(rank_error(four, 4), "no error");
  EXPECT_EQ(
      rank_error(four, 6, 8, {"--batch.global=6"}),
      "input.toml:8: sharding.reshard_after_forward (4) does not divide mesh.shard (6); nearest legal: 3 "
      "or 6");
  EXPECT_EQ(
      rank_error("[sharding]\nreshard_after_forward = 3\n", 4),
      "input.toml:8: sharding.reshard_after_forward (3) does not divide mesh.shard (4); nearest legal: 2 "
      "or 4");
  EXPECT_EQ(rank_error("[sharding]\nreshard_after_forward = 2\n", 5, 8, {"--batch.global=5"}),
            "input.toml:8: sharding.reshard_after_forward (2) does not divide mesh.shard (5); nearest legal: "
            "5");
  EXPECT_EQ(
      rank_error("[sharding]\nreshard_after_forward = 16\n", 8),
      "input.toml:8: sharding.reshard_after_forward (16) does not divide mesh.shard (8); nearest legal: "
      "8");
  EXPECT_EQ(rank_error(four, 1),
            "input.toml:8: sharding.reshard_after_forward (4) does not divide mesh.shard (1); nearest legal: "
            "true");
}

TEST(Reshard, AutoIsWhatTheStrategySays) {
  EXPECT_TRUE(reshard_after_forward(deck_of()));
  EXPECT_EQ(reshard_group(deck_of()), 0);
  EXPECT_FALSE(reshard_after_forward(deck_of("[sharding]\nstrategy = \"SHARD_GRAD_OP\"\n")));
  EXPECT_FALSE(reshard_after_forward(deck_of("[sharding]\nreshard_after_forward = false\n")));
  EXPECT_TRUE(reshard_after_forward(
      deck_of("[sharding]\nstrategy = \"SHARD_GRAD_OP\"\nreshard_after_forward = true\n")));
}

TEST(Prefetch, NamesOfFsdp) {
  EXPECT_EQ(sharding_of("").backward_prefetch, "pre");
  EXPECT_EQ(sharding_of("").forward_prefetch, 1);
  EXPECT_EQ(sharding_of("backward_prefetch = \"BACKWARD_PRE\"\n").backward_prefetch, "pre");
  EXPECT_EQ(sharding_of("backward_prefetch = \"backward_post\"\n").backward_prefetch, "post");
  EXPECT_EQ(sharding_of("backward_prefetch = \"NONE\"\n").backward_prefetch, "none");
  EXPECT_EQ(sharding_error("backward_prefetch = \"BACKWARD_PRO\"\n"),
            "input.toml:8: sharding.backward_prefetch = \"BACKWARD_PRO\" is not legal: expected one of pre, "
            "post, none, BACKWARD_PRE (= pre), BACKWARD_POST (= post); nearest legal: BACKWARD_PRE");
  EXPECT_EQ(sharding_error("forward_prefetch = 65\n"),
            "input.toml:8: sharding.forward_prefetch = 65 is not legal: expected an integer from 0 to 64; "
            "nearest legal: 64");
}

TEST(Units, ByPatternNeedsPatternsAndNothingElseTakesThem) {
  const Sharding s = sharding_of("unit = \"pattern\"\nunit_patterns = [\"model.layers.*.mlp\"]\n");
  EXPECT_EQ(s.unit_patterns, std::vector<std::string>{"model.layers.*.mlp"});
  EXPECT_EQ(sharding_of("unit = \"size\"\nunit_min_parameters = 2e8\n").unit_min_parameters, 200000000);
  EXPECT_EQ(
      sharding_error("unit = \"pattern\"\n"),
      "input.toml:8: sharding.unit = \"pattern\" needs sharding.unit_patterns, the patterns of modules' "
      "names, such as [\"model.layers.*.mlp\"]");
  EXPECT_EQ(sharding_error("unit_patterns = [\"*.mlp\"]\n"),
            "input.toml:8: sharding.unit_patterns is used by sharding.unit = \"pattern\" only, and that is "
            "\"block\"; choose one of them");
  EXPECT_EQ(
      sharding_error("unit = \"pattern\"\nunit_patterns = [\"*.mlp\", \"\"]\n"),
      "input.toml:9: sharding.unit_patterns holds an empty pattern, which matches no name; leave it out");
}

TEST(Limits, AreElementsAndUnits) {
  const Sharding s = sharding_of(
      "max_gathered_units = 2\nmax_live_parameters = 1e9\nmax_reuse_distance = 1e9\n"
      "persistence_threshold = 1e5\nreduce_bucket_size = 5e8\n");
  EXPECT_EQ(s.max_gathered_units, 2);
  EXPECT_EQ(s.max_live_parameters, 1000000000);
  EXPECT_EQ(s.max_reuse_distance, 1000000000);
  EXPECT_EQ(s.persistence_threshold, 100000);
  EXPECT_EQ(s.reduce_bucket_size, 500000000);
  EXPECT_EQ(sharding_error("max_gathered_units = -1\n").find("no error"), std::string::npos);
}

TEST(Placement, IsFreeOnResumeAndNoPartOfTheHash) {
  const std::string placement =
      "[sharding]\nreshard_after_forward = 2\nforward_prefetch = 3\nbackward_prefetch = \"none\"\n"
      "max_gathered_units = 2\nmax_live_parameters = 1000\nmax_reuse_distance = 10\nreduce_bucket_size = 10\n"
      "unit = \"model\"\npersistence_threshold = 1000\noverlap_reduce = false\n[recompute]\nmode = "
      "\"selective\"\npieces = [\"norm\"]\n[cluster]\npreset = \"mi300x\"\n";
  EXPECT_EQ(deck_hash(deck_of(placement)), deck_hash(deck_of()));
  EXPECT_TRUE(forbidden(changes_on_resume(deck_of(placement), resolved_toml(deck_of()))).empty());
}

TEST(RecomputeDeck, ModesAndTheirKeys) {
  const Recompute full = deck_of("[recompute]\nmode = \"full\"\nevery = 2\n").recompute;
  EXPECT_EQ(full.every, 2);
  const Recompute some =
      deck_of("[recompute]\nmode = \"selective\"\npieces = [\"ffn\", \"norm\"]\n").recompute;
  EXPECT_EQ(some.pieces, (std::vector<std::string>{"ffn", "norm"}));
  EXPECT_EQ(deck_error("[recompute]\nmode = \"selective\"\n"),
            "input.toml:8: recompute.mode = \"selective\" needs recompute.pieces, what is run again, such as "
            "[\"norm\", \"swiglu\"]");
  EXPECT_EQ(deck_error("[recompute]\nmode = \"full\"\npieces = [\"norm\"]\n"),
            "input.toml:9: recompute.pieces is used by recompute.mode = \"selective\" only, and that is "
            "\"full\"; choose one of them");
  EXPECT_EQ(
      deck_error("[recompute]\nevery = 2\n"),
      "input.toml:8: recompute.every = 2 needs recompute.mode = \"full\", and that is \"none\"; nearest "
      "legal: 1");
  EXPECT_EQ(deck_error("[recompute]\nmode = \"selective\"\npieces = [\"norms\"]\n"),
            "input.toml:9: recompute.pieces = [\"norms\"] is not legal: expected a list of norm, qkv, "
            "attention, swiglu, router, dispatch, combine, ffn; nearest legal: norm");
}

TEST(RecomputeDeck, PiecesCoverTags) {
  using Tags = std::vector<std::string_view>;
  EXPECT_EQ(recompute_tags({}), Tags{});
  EXPECT_EQ(recompute_tags({"ffn", "norm", "swiglu"}), (Tags{"norm", "swiglu", "gate_up"}));
  EXPECT_EQ(error_of([] { recompute_tags({"mlp"}); }), "'mlp' is not a piece of recompute.pieces");
  for (const RecomputePiece& piece : recompute_pieces()) {
    EXPECT_FALSE(piece.tags.empty()) << piece.name;
    EXPECT_NE(inputs_markdown().find(std::string(piece.doc)), std::string::npos) << piece.name;
  }
}

}  // namespace
}  // namespace ztrain::config::config_sharding_test
