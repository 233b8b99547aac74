// How many ranks a deck may have where some of its nodes are gone.

#include "plan/setup.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "config/text/load.hpp"

namespace ztrain::plan::legal_ranks_test {
namespace {

/// A model whose vocabulary the data are to say.
int largest(const std::string& more, int most, int per_node) {
  const std::string text =
      "[run]\nsteps = 4\n[data]\ntrain = [\"text.txt\"]\nsequence = 32\n"
      "[model]\nhidden_size = 32\nintermediate_size = 80\nnum_hidden_layers = 3\nnum_attention_heads = 4\n"
      "num_key_value_heads = 4\n" +
      more;
  return largest_legal_ranks(config::parse_deck(text, "/decks/own.toml", {}, config::Files::elsewhere), most,
                             per_node, Target::cpu);
}

TEST(LegalRanks, AreThoseThatTheBatchDividesBy) {
  EXPECT_EQ(largest("[batch]\nglobal = 16\nmicro = 1\n", 16, 8), 16);
  EXPECT_EQ(largest("[batch]\nglobal = 16\nmicro = 1\n", 15, 8), 8);
  EXPECT_EQ(largest("[batch]\nglobal = 24\nmicro = 2\n", 11, 4), 6);
  EXPECT_EQ(largest("[batch]\nglobal = 16\nmicro = 1\n[mesh]\nreplicate = -1\nshard = 4\n", 14, 8), 8);
}

TEST(LegalRanks, AreWhatTheModelCanBeCutInto) {
  EXPECT_EQ(largest("[batch]\nglobal = 16\nmicro = 1\n[mesh]\nshard = 1\ntensor = -1\n", 14, 8), 4);
  EXPECT_EQ(largest("[batch]\nglobal = 16\nmicro = 1\n[mesh]\nshard = 2\npipeline = -1\n", 16, 8), 6);
}

TEST(LegalRanks, FillNodesWhereAStrategyStaysWithinThem) {
  const std::string hybrid = "[batch]\nglobal = 24\nmicro = 1\n[sharding]\nstrategy = \"HYBRID_SHARD\"\n";
  EXPECT_EQ(largest(hybrid, 12, 4), 12);
  EXPECT_EQ(largest(hybrid, 11, 4), 8);
}

TEST(LegalRanks, SayThatADeckFixesThem) {
  const std::string fixed = "[batch]\nglobal = 16\nmicro = 1\n[mesh]\nreplicate = 2\nshard = 4\n";
  EXPECT_EQ(largest(fixed, 9, 8), 8);
  try {
    largest(fixed, 7, 8);
    FAIL() << "seven ranks are no mesh of eight";
  } catch (const Error& e) {
    const std::string said = e.what();
    EXPECT_NE(said.find("/decks/own.toml: no number of ranks up to 7 is legal: the deck fixes its mesh"),
              said.npos)
        << said;
    EXPECT_NE(said.find("but the job has 7 ranks: launch 8"), said.npos) << said;
  }
  try {
    largest("[batch]\nglobal = 16\nmicro = 1\n[mesh]\nreplicate = -1\nshard = 4\n", 3, 8);
    FAIL() << "three ranks are no multiple of four";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("fixes"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ztrain::plan::legal_ranks_test
