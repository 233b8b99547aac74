// Decks: parsing, every message, presets, the arithmetic of ranks and batches, and the texts made from the
// field table.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "config/fields/fields.hpp"
#include "config/fields/presets.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_test {
namespace {

namespace fs = std::filesystem;

TEST(Defaults, AreThoseOfTheTable) {
  const Deck d = deck_of();
  EXPECT_EQ(d.run.output, "runs/input");
  EXPECT_EQ(d.run.seed, 1234);
  EXPECT_EQ(d.run.steps, 100);
  EXPECT_EQ(d.data.sequence, 512);
  EXPECT_EQ(d.data.validation_fraction, 0.01);
  EXPECT_EQ(d.model.head_dim, 64);
  EXPECT_EQ(d.model.num_key_value_heads, 8);
  EXPECT_EQ(d.model.rms_norm_eps, 1e-5);
  EXPECT_EQ(d.mesh.shard, -1);
  EXPECT_EQ(d.precision.parameters, DType::bf16);
  EXPECT_EQ(d.precision.master, DType::f32);
  EXPECT_EQ(d.sharding.strategy, "FULL_SHARD");
  EXPECT_EQ(d.optimizer.beta1, 0.9);
  EXPECT_EQ(d.optimizer.beta2, 0.95);
  EXPECT_EQ(d.checkpoint.resume, "auto");
  EXPECT_EQ(checkpoint_folder(d), fs::absolute("runs/input/checkpoints").string());
  EXPECT_EQ(source_of(d, "run.steps"), "input.toml:6");
  EXPECT_EQ(source_of(d, "run.seed"), "default");
}

TEST(Table, EveryFieldIsDocumentedAndItsDefaultLegal) {
  for (const auto& field : fields()) {
    EXPECT_FALSE(field.doc.empty()) << field.key;
    EXPECT_EQ(field.doc.back(), '.') << field.key;
    EXPECT_FALSE(section_doc(field.section()).empty()) << field.key;
    EXPECT_EQ(find_field(field.key), &field) << "two rows for " << field.key;
  }
}

TEST(Parse, UnknownKeysNameTheLineAndTheNearestKey) {
  static const std::string rest = "[data]\ntrain = \"a\"\n[run]\nsteps = 1\n";
  EXPECT_EQ(deck_error("[mesh]\nshards = 2\n"),
            "input.toml:8: unknown key 'mesh.shards'; did you mean 'mesh.shard'?");
  EXPECT_EQ(error_of([] { parse_deck("[batch]\nglobl = 8\n" + rest, "input.toml"); }),
            "input.toml:2: unknown key 'batch.globl'; did you mean 'batch.global'?");
  EXPECT_EQ(deck_error("[optimizer]\nwarmup = 3\n"),
            "input.toml:8: unknown key 'optimizer.warmup'; did you mean 'schedule.warmup'?");
  EXPECT_EQ(deck_error("[sharding]\nprefetch = 1\n"),
            "input.toml:8: unknown key 'sharding.prefetch'; did you mean 'sharding.forward_prefetch'?");
  EXPECT_EQ(deck_error("[optimiser]\nlr = 1\n"),
            "input.toml:7: unknown section 'optimiser'; did you mean 'optimizer'?");
  EXPECT_EQ(
      error_of([] { parse_deck("steps = 8\n[batch]\nglobal = 8\n[data]\ntrain = \"a\"\n", "input.toml"); }),
      "input.toml:1: unknown key 'steps' outside any section; did you mean 'run.steps' or 'profile.steps'?");
  EXPECT_EQ(error_of([] { parse_deck("batch = 8\n" + rest, "input.toml"); }),
            "input.toml:1: 'batch' is a section: write [batch], and its keys below");
  EXPECT_EQ(deck_error("", {"--batch.globl=8"}),
            "command line: unknown key 'batch.globl'; did you mean 'batch.global'?");
}

TEST(Parse, SyntaxErrorsNameTheLine) {
  const std::string message = deck_error("[mesh]\nshard = = 2\n");
  EXPECT_EQ(message.rfind("input.toml:8: not valid TOML: ", 0), 0u) << message;
  const std::string twice = deck_error("steps = 5\n");
  EXPECT_EQ(twice.rfind("input.toml:7: not valid TOML: ", 0), 0u) << twice;
}

TEST(Parse, MarksOfUtf8ArePassedOverAndOtherEncodingsNamed) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(parse_deck(mark + base, "input.toml").run.steps, 100);
  EXPECT_NE(error_of([&] { parse_deck(mark + "{}", "a.toml"); }).find("this is JSON"), std::string::npos);
  std::string wide = "\xff\xfe";
  for (const char c : base) wide += {c, '\0'};
  EXPECT_TRUE(
      error_of([&] { parse_deck(wide, "a.toml"); }).starts_with("a.toml: is text in UTF-16, and must be"));
}

TEST(Parse, WrongTypesAndIllegalValues) {
  EXPECT_EQ(deck_error("[mesh]\nshard = \"two\"\n"),
            "input.toml:8: mesh.shard = \"two\" is not legal: expected an integer from 1 to 1000000, or -1");
  EXPECT_EQ(deck_error("[checkpoint]\nfiles = 300\n"),
            "input.toml:8: checkpoint.files = 300 is not legal: expected an integer from 0 to 256; nearest "
            "legal: 256");
  EXPECT_EQ(
      deck_error("[cluster]\nmemory_efficiency = 1.5\n"),
      "input.toml:8: cluster.memory_efficiency = 1.5 is not legal: expected a number above 0, at most 1; "
      "nearest legal: 1");
  EXPECT_EQ(
      deck_error("[metrics]\ninterval = 0\n"),
      "input.toml:8: metrics.interval = 0 is not legal: expected an integer, 1 or more; nearest legal: 1");
  EXPECT_EQ(deck_error("[mesh]\nshard = 0\n"),
            "input.toml:8: mesh.shard = 0 is not legal: expected an integer from 1 to 1000000, or -1; "
            "nearest legal: 1");
  EXPECT_EQ(deck_error("[optimizer]\nlr = 0\n"),
            "input.toml:8: optimizer.lr = 0 is not legal: expected a number above 0");
  EXPECT_EQ(deck_error("[optimizer]\nbetas = [0.9, 1.0]\n"),
            "input.toml:8: optimizer.betas = [0.9, 1] is not legal: expected two numbers from 0 to below 1");
  EXPECT_EQ(
      deck_error("[optimizer]\nbetas = 0.9\n"),
      "input.toml:8: optimizer.betas = 0.9 is not legal: expected two numbers from 0 to below 1; nearest "
      "legal: [0.9, 0.95]");
  EXPECT_EQ(deck_error("[optimizer]\nlr = nan\n"),
            "input.toml:8: optimizer.lr = nan is not legal: expected a number above 0");
  EXPECT_EQ(deck_error("[recompute]\nmode = \"ful\"\n"),
            "input.toml:8: recompute.mode = \"ful\" is not legal: expected one of none, full, selective; "
            "nearest legal: full");
  EXPECT_EQ(deck_error("[debug]\npoison = 1\n"),
            "input.toml:8: debug.poison = 1 is not legal: expected true or false; nearest legal: true");
  EXPECT_EQ(deck_error("[checkpoint]\ninterval = 2.5\n"),
            "input.toml:8: checkpoint.interval = 2.5 is not legal: expected an integer, -1 or more; nearest "
            "legal: 2");
  EXPECT_EQ(
      deck_error("[model]\npreset = \"llama3-8\"\n").find("nearest legal: llama3-8b") != std::string::npos,
      true);
  EXPECT_EQ(deck_error("[data.validation]\nx = 1\n").rfind("input.toml:", 0), 0u);
}

TEST(Parse, MissingKeysAndFiles) {
  EXPECT_EQ(error_of([] { parse_deck("[batch]\nglobal = 8\n[run]\nsteps = 1\n", "input.toml"); }),
            "input.toml: data.train is missing; it has no default: give a list of strings");
  EXPECT_EQ(error_of([] { parse_deck("[data]\ntrain = \"a\"\n[run]\nsteps = 1\n", "input.toml"); }),
            "input.toml: batch.global is missing; it has no default: give an integer from 1 to 1000000000");
  EXPECT_EQ(error_of([] { load_deck("/nowhere/deck.toml"); }),
            "the deck: cannot read '/nowhere/deck.toml': No such file or directory");
}

TEST(Parse, LengthOfTheRun) {
  EXPECT_EQ(error_of([] { parse_deck("[batch]\nglobal = 8\n[data]\ntrain = \"a\"\n", "input.toml"); }),
            "input.toml: the length of the run is missing; give one of run.steps, run.tokens, run.epochs");
  EXPECT_EQ(
      deck_error("tokens = 1e9\n"),
      "run.steps (input.toml:6) and run.tokens (input.toml:7) contradict each other; give exactly one of "
      "run.steps, run.tokens, run.epochs");
  EXPECT_EQ(
      deck_error("", {"--run.epochs=2"}),
      "run.steps (input.toml:6) and run.epochs (command line) contradict each other; give exactly one of "
      "run.steps, run.tokens, run.epochs: here with --run.steps=0");
  const Deck tokens = deck_of("", {"--run.steps=0", "--run.tokens=1e6"});
  EXPECT_EQ(tokens.run.tokens, 1000000);
  EXPECT_EQ(total_steps(tokens, 0), 245);  // 1e6 / (8 * 512), rounded up
  EXPECT_EQ(total_steps(deck_of("", {"--run.steps=0", "--run.epochs=1.5"}), 80), 15);
  EXPECT_EQ(total_steps(deck_of(), 80), 100);
}

TEST(Overrides, WinOverTheFileAndTakeBareWords) {
  const Deck d = deck_of("[optimizer]\nlr = 1e-3\n",
                         {"--optimizer.lr=5e-4", "run.output=out/x", "--optimizer.betas=[0.8, 0.9]",
                          "--sharding.strategy=zero2", "--data.train=a.txt", "--optimizer.lr=6e-4",
                          "--debug.poison=true", "--checkpoint.resume=12", "--precision.reduce=bf16"});
  EXPECT_EQ(d.optimizer.lr, 6e-4);
  EXPECT_EQ(d.run.output, "out/x");
  EXPECT_EQ(d.optimizer.beta1, 0.8);
  EXPECT_EQ(d.sharding.strategy, "zero2");
  EXPECT_EQ(d.data.train.size(), 1u);
  EXPECT_TRUE(d.debug.poison);
  EXPECT_EQ(fs::path(d.checkpoint.resume).filename(), "12");
  EXPECT_EQ(d.precision.reduce, DType::bf16);
  EXPECT_EQ(source_of(d, "optimizer.lr"), "command line");
  EXPECT_EQ(deck_error("", {"--run.steps"}),
            "command line: '--run.steps' has no value: write --run.steps=VALUE");
  EXPECT_EQ(deck_error("", {"--run.steps=abc"}),
            "command line: run.steps = \"abc\" is not legal: expected an integer, 0 or more");
}

TEST(Strategies, AliasesInAnyCaseAreStoredCanonical) {
  const auto stored = [](const std::string& name) {
    return deck_of("[sharding]\nstrategy = \"" + name + "\"\n").sharding.strategy;
  };
  for (const auto* name : {"NO_SHARD", "no_shard", "zero0", "ddp", "DDP"})
    EXPECT_EQ(stored(name), "NO_SHARD");
  EXPECT_EQ(stored("ZeRO1"), "zero1");
  EXPECT_EQ(stored("Zero2"), "zero2");
  EXPECT_EQ(stored("shard_grad_op"), "SHARD_GRAD_OP");
  for (const auto* name : {"zero3", "full_shard"}) EXPECT_EQ(stored(name), "FULL_SHARD");
  EXPECT_EQ(stored("hybrid_shard"), "HYBRID_SHARD");
  EXPECT_EQ(
      deck_error("[sharding]\nstrategy = \"FULLSHARD\"\n"),
      "input.toml:8: sharding.strategy = \"FULLSHARD\" is not legal: expected one of NO_SHARD, zero1, zero2, "
      "SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD, zero0 (= NO_SHARD), ddp (= NO_SHARD), zero3 (= FULL_SHARD); "
      "nearest legal: FULL_SHARD");
}

TEST(Presets, SetDimsAndYieldToTheDeck) {
  const Deck d = deck_of("[model]\nnum_hidden_layers = 4\npreset = \"llama3.1-70b\"\n");
  EXPECT_EQ(d.model.hidden_size, 8192);
  EXPECT_EQ(d.model.num_hidden_layers, 4);
  EXPECT_EQ(d.model.num_key_value_heads, 8);
  EXPECT_EQ(d.model.head_dim, 128);
  EXPECT_EQ(d.model.rope_scaling, "llama3");
  EXPECT_EQ(source_of(d, "model.hidden_size"), "preset llama3.1-70b");
  EXPECT_EQ(source_of(d, "model.num_hidden_layers"), "input.toml:8 (over preset llama3.1-70b)");
  for (const auto& name : model_preset_names()) {
    EXPECT_NO_THROW(deck_of("", {"--model.preset=" + name})) << name;
  }
  const Deck small = deck_of("", {"--model.preset=llama3.2-1b"});
  EXPECT_TRUE(small.model.tie_word_embeddings);
  EXPECT_EQ(small.model.head_dim, 64);
  EXPECT_EQ(small.model.rope_factor, 32);
}

TEST(Presets, PrecisionSetsFiveDtypes) {
  const Deck d = deck_of("[precision]\npreset = \"fp32\"\nreduce = \"bf16\"\n");
  EXPECT_EQ(d.precision.parameters, DType::f32);
  EXPECT_EQ(d.precision.reduce, DType::bf16);
  EXPECT_EQ(deck_of("", {"--precision.preset=fp64"}).precision.moments, DType::f64);
  EXPECT_EQ(deck_error("[precision]\nmaster = \"fp64\"\n"),
            "input.toml:8: fp64 is legal for all five dtypes of [precision] together only; 1 of them is "
            "fp64: write "
            "precision.preset = \"fp64\" alone");
  EXPECT_EQ(deck_error("[precision]\nmaster = \"fp8\"\n"),
            "input.toml:8: precision.master = \"fp8\" is not legal: expected one of fp32, bf16, fp16, fp64");
}

TEST(Paths, VariablesAndFolders) {
  setenv("ZTRAIN_TEST_FOLDER", "/scratch/me", 1);
  const Deck d =
      parse_deck(base + "output = \"${ZTRAIN_TEST_FOLDER}/run\"\n[checkpoint]\nfolder = \"saves\"\n",
                 "/decks/input.toml");
  EXPECT_EQ(d.run.output, "/scratch/me/run");
  EXPECT_EQ(d.data.train, std::vector<std::string>{"/decks/*.bin"});
  EXPECT_EQ(checkpoint_folder(d), fs::absolute("saves").string()) << "what a run writes";
  const Deck typed = parse_deck(base, "/decks/input.toml",
                                {"--data.train=[\"a.bin\", \"../b.bin\"]", "--checkpoint.resume=step_4"});
  EXPECT_EQ(typed.data.train, (std::vector<std::string>{fs::absolute("a.bin").string(),
                                                        fs::absolute("../b.bin").lexically_normal()}));
  EXPECT_EQ(typed.checkpoint.resume, fs::absolute("step_4").string());
  EXPECT_EQ(deck_of("output = \"x\"\n").run.output, "x");
  EXPECT_EQ(deck_error("output = \"${ZTRAIN_TEST_UNSET}/run\"\n"),
            "input.toml:7: run.output = \"${ZTRAIN_TEST_UNSET}/run\": the environment variable "
            "ZTRAIN_TEST_UNSET is not "
            "set");
  const Deck elsewhere =
      parse_deck(base + "output = \"${ZTRAIN_TEST_UNSET}/run\"\n", "/a.toml", {}, Files::elsewhere);
  EXPECT_EQ(
      notes_on_variables(elsewhere),
      std::vector<std::string>{"run.output = \"${ZTRAIN_TEST_UNSET}/run\": a run needs this environment "
                               "variable, which is not set here"});
  EXPECT_EQ(notes_on_variables(d).size(), 0u);
  const std::string twice = deck_error("", {"--data.validation=[\"a.bin\", \"b.bin\", \"./a.bin\"]"});
  EXPECT_NE(twice.find("data.validation names '"), std::string::npos) << twice;
  EXPECT_NE(twice.find("/a.bin' twice"), std::string::npos) << twice;
  EXPECT_EQ(
      deck_error("output = \"~/run\"\n").find("input.toml:7: run.output = \"~/run\": no shell is there to"),
      0u)
      << deck_error("output = \"~/run\"\n");
  EXPECT_EQ(deck_error("output = \"${HOME\"\n"), "input.toml:7: run.output = \"${HOME\": '${' without '}'");
}

TEST(Checks, KeysThatDependOnEachOther) {
  EXPECT_EQ(deck_error("[model]\nnum_attention_heads = 6\n"),
            "input.toml:8: model.num_attention_heads (6) does not divide model.hidden_size (512); nearest "
            "legal: 4 or 8, "
            "or give model.head_dim");
  EXPECT_EQ(deck_error("[model]\nnum_key_value_heads = 3\n"),
            "input.toml:8: model.num_key_value_heads (3) does not divide model.num_attention_heads (8); "
            "nearest legal: 2 "
            "or 4");
  EXPECT_EQ(deck_error("[model]\nhead_dim = 7\n"),
            "input.toml:8: model.head_dim (7) is odd; rotary embedding turns pairs: nearest legal: 8");
  EXPECT_EQ(deck_of("[model]\nnum_attention_heads = 6\nhead_dim = 64\n").model.head_dim, 64);
  EXPECT_EQ(deck_error("[schedule]\nwarmup = 100\n"),
            "input.toml:8: schedule.warmup (100) is not below the run's 100 steps; nearest legal: 99");
  EXPECT_EQ(deck_error("[schedule]\nname = \"wsd\"\n"),
            "input.toml:8: schedule.name = \"wsd\" needs schedule.decay, the steps of its final decay");
  EXPECT_EQ(deck_error("[schedule]\nname = \"wsd\"\nwarmup = 50\ndecay = 60\n"),
            "input.toml:10: schedule.warmup (50) + schedule.decay (60) = 110 exceeds the run's 100 steps; "
            "nearest legal "
            "decay: 50");
  EXPECT_EQ(deck_error("", {"--data.validation_fraction=0", "--evaluation.interval=5"}),
            "command line: evaluation.interval = 5 needs validation data: give data.validation, or a "
            "data.validation_fraction above 0");
  EXPECT_EQ(deck_error("", {"--data.train=[]"}), "command line: data.train is empty; name files or patterns");
  const auto weights = [](const char* given) {
    return deck_error("", {"--data.train=[\"a\", \"b\"]", std::string("--data.weights=") + given});
  };
  EXPECT_EQ(weights("[]"), "no error");
  EXPECT_EQ(weights("[3, 1]"), "no error");
  for (const auto& [given, count] : {std::pair{"[3]", "1"}, {"[3, 2, 1]", "3"}})
    EXPECT_EQ(weights(given), std::string("command line: data.weights has ") + count +
                                  " numbers for the 2 entries of data.train; give one for each, or none");
  EXPECT_EQ(deck_error("[mesh]\nshard = -1\nreplicate = -1\n"),
            "mesh.replicate (input.toml:9) and mesh.shard (input.toml:8) are both -1; at most one degree of "
            "the mesh may "
            "be");
  EXPECT_EQ(deck_error("", {"--model.rope_scaling=llama3", "--model.rope_high_freq_factor=1"}),
            "command line: model.rope_high_freq_factor (1) must be above model.rope_low_freq_factor (1)");
}

TEST(Ranks, TheMeshIsResolved) {
  EXPECT_EQ(on_ranks("", 4).mesh.shard, 4);
  const Deck two = on_ranks("[mesh]\nreplicate = 2\n", 4);
  EXPECT_EQ(two.mesh.shard, 2);
  EXPECT_EQ(data_parallel_degree(two), 4);
  EXPECT_EQ(accumulation_steps(two), 2);
  EXPECT_EQ(source_of(two, "mesh.shard"), "4 ranks / 2");
  const Deck copies = on_ranks("[mesh]\nreplicate = -1\n", 4);
  EXPECT_EQ(copies.mesh.replicate, 4);
  EXPECT_EQ(copies.mesh.shard, 1);
  Deck again = two;
  validate_for_ranks(again, 4, 8);
  EXPECT_EQ(again.mesh.shard, 2);
}

TEST(Ranks, HybridShardStaysWithinANode) {
  const std::string hybrid = "[sharding]\nstrategy = \"HYBRID_SHARD\"\n";
  const Deck d = on_ranks(hybrid, 8, 4);
  EXPECT_EQ(d.mesh.shard, 4);
  EXPECT_EQ(d.mesh.replicate, 2);
  const Deck one_node = on_ranks(hybrid, 8, 8);
  EXPECT_EQ(one_node.mesh.shard, 8);
  EXPECT_EQ(one_node.mesh.replicate, 1);
  EXPECT_EQ(on_ranks(hybrid + "[cluster]\nranks_per_node = 2\n", 8, 8).mesh.replicate, 4);
  EXPECT_EQ(on_ranks(hybrid + "[mesh]\nshard = 2\n", 8, 4).mesh.replicate, 4);
  EXPECT_EQ(on_ranks(hybrid + "[mesh]\nreplicate = 8\n", 8, 4).mesh.shard, 1);
  EXPECT_EQ(on_ranks(hybrid + "[mesh]\nreplicate = -1\n", 8, 4).mesh.replicate, 2);
  EXPECT_EQ(
      rank_error(hybrid, 8, 3),
      "sharding.strategy = HYBRID_SHARD (input.toml:8): 8 ranks are not whole nodes of 3; give mesh.shard, a "
      "divisor of 8: 2 or 4");
}

TEST(Ranks, HybridShardStaysWithinAStageOfAPipeline) {
  const std::string hybrid = "[sharding]\nstrategy = \"HYBRID_SHARD\"\n[mesh]\npipeline = ";
  const auto degrees = [&](const char* pipeline, int ranks, int per_node) {
    const Deck d = on_ranks(hybrid + pipeline + "\n", ranks, per_node);
    return std::pair(d.mesh.shard, d.mesh.replicate);
  };
  EXPECT_EQ(degrees("2", 8, 8), std::pair(std::int64_t{4}, std::int64_t{1})) << "two stages on a node";
  EXPECT_EQ(degrees("2", 16, 8), std::pair(std::int64_t{8}, std::int64_t{1})) << "a node for each";
  EXPECT_EQ(degrees("2\ntensor = 2", 32, 8), std::pair(std::int64_t{4}, std::int64_t{2}))
      << "two nodes for each";
  EXPECT_EQ(degrees("2\ntensor = 2", 8, 8), std::pair(std::int64_t{2}, std::int64_t{1}));
  EXPECT_EQ(
      rank_error(hybrid + "2\n", 24, 8),
      "sharding.strategy = HYBRID_SHARD (input.toml:8): 12 ranks of each of mesh.pipeline's 2 stages are "
      "not whole nodes of 8; give mesh.shard, a divisor of 12: 6 or 12");
  EXPECT_NE(rank_error(hybrid + "3\n", 8, 8).find("does not divide the job's 8 ranks"), std::string::npos);
}

TEST(Ranks, MeshesThatDoNotFitShowTheEquation) {
  EXPECT_EQ(rank_error("[mesh]\nshard = 3\n", 4),
            "mesh.pipeline (1) x mesh.replicate (1) x mesh.shard (3) x mesh.context (1) x mesh.tensor (1) = "
            "3, but the job "
            "has 4 ranks: launch 3, or set one degree to -1 and it becomes what is left");
  EXPECT_EQ(rank_error("[mesh]\nreplicate = 3\n", 4),
            "default: mesh.shard = -1 cannot be resolved: the other degrees of mesh.pipeline (1) x "
            "mesh.replicate (3) x "
            "mesh.shard (-1) x mesh.context (1) x mesh.tensor (1) multiply to 3, which does not divide the "
            "job's 4 ranks; "
            "nearest legal numbers of ranks: 3 or 6");
}

TEST(Ranks, BatchesThatDoNotFitShowTheEquation) {
  EXPECT_EQ(
      rank_error("", 8, 8, {"--batch.global=12"}),
      "command line: batch.global (12) = batch.micro (1) x data-parallel ranks (8) x accumulation (1.5): the "
      "accumulation must be whole; nearest legal: batch.global = 8 or 16");
  EXPECT_EQ(rank_error("", 4, 8, {"--batch.micro=3"}),
            "input.toml:4: batch.global (8) = batch.micro (3) x data-parallel ranks (4) x accumulation "
            "(0.6667): the "
            "accumulation must be whole; nearest legal: batch.global = 12, or batch.micro = 2");
}

TEST(Ranks, BatchesThatDoNotFitSayWhichMicroBatchesDo) {
  EXPECT_NE(rank_error("", 2, 8, {"--batch.global=24", "--batch.micro=5"})
                .find("batch.global = 20 or 30, or batch.micro = 4 or 6"),
            std::string::npos);
}

TEST(Ranks, AStepHasABoundedNumberOfMicroBatches) {
  EXPECT_EQ(rank_error("", 2, 8, {"--batch.global=131072"}), "no error");
  EXPECT_EQ(
      rank_error("", 2, 8, {"--batch.global=131074"}),
      "command line: batch.global (131074) is 65537 micro-batches of batch.micro (1) for each of 2 "
      "data-parallel "
      "ranks, more than the 65536 that a step may have: take a larger batch.micro, or at most batch.global = "
      "131072");
}

}  // namespace
}  // namespace ztrain::config::config_test
