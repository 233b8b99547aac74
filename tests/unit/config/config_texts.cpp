// The texts made from the field table: template, documentation, resolved deck, hash; and what may change on
// resume.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "config/fields/fields.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_texts_test {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// `#key = value` lines of a template, uncommented.
std::string uncommented(const std::string& text) {
  return std::regex_replace(text, std::regex("\n#([a-z])"), "\n$1");
}

std::string values_of(const Deck& deck) {
  std::string text;
  for (const auto& origin : deck.origins) text += origin.key + " = " + origin.value + "\n";
  return text;
}

TEST(Texts, TheTemplateLoadsToTheDefaults) {
  const std::string given = "[data]\ntrain = [\"data/*.bin\"]\n[batch]\nglobal = 64\n[run]\nsteps = 1000\n";
  const std::string expected = values_of(parse_deck(given, "input.toml"));
  EXPECT_EQ(values_of(parse_deck(deck_template(), "input.toml")), expected);
  const Deck all = parse_deck(uncommented(deck_template()), "input.toml");
  EXPECT_EQ(values_of(all), expected);
  for (const auto& field : fields()) {
    EXPECT_NE(deck_template().find(field.member() + " = "), std::string::npos) << field.key;
  }
}

TEST(Texts, TheResolvedDeckLoadsToTheSame) {
  Deck d = deck_of(
      "[model]\npreset = \"smoke\"\nrope_theta = 5e5\n[optimizer]\nlr = 3.3333333333333335e-5\n"
      "[sharding]\nstrategy = \"zero3\"\n[checkpoint]\nfolder = 'a \"b\" \\c'\n");
  validate_for_ranks(d, 4, 4);
  const std::string text = resolved_toml(d);
  const Deck again = parse_deck(text, "/elsewhere/deck.resolved.toml");
  EXPECT_EQ(values_of(again), values_of(d)) << text;
  EXPECT_EQ(again.optimizer.lr, 3.3333333333333335e-5);
  EXPECT_EQ(again.checkpoint.folder, d.checkpoint.folder);
  EXPECT_NE(text.find("hidden_size = 64  # preset smoke\n"), std::string::npos) << text;
  EXPECT_NE(text.find("seed = 1234  # default\n"), std::string::npos);
  EXPECT_NE(text.find("shard = 4  # 4 ranks / 1\n"), std::string::npos);
}

TEST(Texts, HashFollowsTheNumericsOnly) {
  const std::uint64_t hash = deck_hash(deck_of());
  EXPECT_EQ(deck_hash(deck_of(
                "output = \"other\"\n[checkpoint]\ninterval = 5\n[sharding]\nstrategy = \"zero1\"\n")),
            hash);
  EXPECT_NE(deck_hash(deck_of("seed = 1\n")), hash);
  EXPECT_NE(deck_hash(deck_of("[optimizer]\nlr = 1e-3\n")), hash);
  EXPECT_NE(deck_hash(deck_of("[precision]\nreduce = \"bf16\"\n")), hash);
  for (const char* products : {"bf16_products = \"fp32\"", "fp32_products = \"native\"", "tf32 = true"})
    EXPECT_NE(deck_hash(deck_of(fmt::format("[device]\n{}\n", products))), hash) << products;
  EXPECT_NE(deck_hash(on_ranks("", 2)), deck_hash(on_ranks("", 4)));
}

// ZTRAIN_REGENERATE=1 writes the page anew; the test then passes.
TEST(Texts, TheDocumentationIsFresh) {
  const fs::path page = "docs/inputs.md";
  if (std::getenv("ZTRAIN_REGENERATE") != nullptr) std::ofstream(page) << inputs_markdown();
  EXPECT_TRUE(read_file(page) == inputs_markdown())
      << page
      << " is stale: run `ztrain deck --markdown > docs/inputs.md`, or this test with ZTRAIN_REGENERATE=1";
}

TEST(Texts, ShippedDecksLoad) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("inputs")) {
    if (entry.path().extension() != ".toml") continue;
    // Decks for clusters leave the folders of data and models to the environment.
    EXPECT_NO_THROW(load_deck(entry.path(), {}, Files::elsewhere)) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(Resume, SomeKeysMayChangeAndOthersNot) {
  const std::string saved = resolved_toml(on_ranks("", 4));
  const auto changes = [&](const std::string& more, const std::vector<std::string>& overrides = {}) {
    return forbidden(changes_on_resume(deck_of(more, overrides), saved));
  };
  EXPECT_TRUE(changes("").empty());
  EXPECT_TRUE(changes("output = \"b\"\n[mesh]\nshard = 2\n[sharding]\nstrategy = "
                      "\"zero1\"\n[recompute]\nmode = \"full\"\n"
                      "[checkpoint]\nkeep = 9\n[watchdog]\ntimeout = 1\n",
                      {"--run.steps=400", "--batch.micro=4", "--data.train=/moved/*.bin"})
                  .empty());
  EXPECT_EQ(changes("[optimizer]\nlr = 1e-3\n"),
            std::vector<std::string>{
                "input.toml:8: optimizer.lr was 0.0003 when the checkpoint was written and is 0.001 now"});
  EXPECT_EQ(changes("seed = 5\n[model]\nhidden_size = 1024\n").size(), 3u);  // the head dim follows
  EXPECT_EQ(changes("", {"--data.train=other.bin"}).size(), 1u);
  EXPECT_EQ(changes("", {"--batch.global=16"}).size(), 1u);
  EXPECT_TRUE(forbidden(changes_on_resume(deck_of(), "[later]\nkey = 1\n")).empty());
  EXPECT_EQ(error_of([&] {
              forbidden(changes_on_resume(deck_of(), "[x\n"));
            }).rfind("the checkpoint's deck:1: not valid TOML: ", 0),
            0u);
}

TEST(Resume, KeysThatAreNamedMayChange) {
  const std::string saved = resolved_toml(on_ranks("", 4));
  const auto changes = [&](const std::string& names, const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"--checkpoint.override=" + names};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return changes_on_resume(deck_of("", overrides), saved);
  };
  const std::vector<std::string> both{"--optimizer.lr=1e-3", "--schedule.warmup=3"};
  EXPECT_EQ(override_for(changes("data.*", both)), "[\"optimizer.lr\", \"schedule.warmup\"]");
  EXPECT_EQ(forbidden(changes("optimizer.*", both)).size(), 1u);
  const DeckChanges permitted = changes("optimizer.lr,schedule.*,run.*", both);
  EXPECT_TRUE(forbidden(permitted).empty());
  ASSERT_EQ(permitted.keys.size(), 2u);
  EXPECT_EQ(permitted.keys[0].before + permitted.keys[0].now, "0.00030.001");
  EXPECT_EQ(permitted.before.optimizer.lr, 3e-4);
  EXPECT_TRUE(permitted.has("schedule.*"));
  EXPECT_EQ(changes("run.*", {"--run.steps=90", "--run.output=b"}).keys.size(), 1u);
  const DeckChanges never = changes("optimizer.*", {"--optimizer.name=lion"});
  EXPECT_EQ(override_for(never), "");
  EXPECT_TRUE(
      forbidden(never).at(0).ends_with("(it can never change: the states of another optimizer are others)"));
  const std::string momentum = resolved_toml(deck_of("[optimizer]\nname = \"sgd\"\n"));
  EXPECT_EQ(forbidden(changes_on_resume(deck_of("[optimizer]\nname = \"sgd\"\nmomentum = 0\n[checkpoint]\n"
                                                "override = [\"optimizer.momentum\"]\n"),
                                        momentum))
                .size(),
            1u)
      << "without a momentum there is no running sum";
}

TEST(Resume, KeysThatDecideWhatIsRoundedToCodesNeedARequest) {
  const std::string codes = "[sharding]\ngather_codes = \"int8\"\n",
                    threshold = "persistence_threshold = 512\n";
  const auto refusals = [](const std::string& before, const std::string& now) {
    return forbidden(changes_on_resume(deck_of(now), resolved_toml(deck_of(before))));
  };
  EXPECT_TRUE(refusals("[sharding]\n", "[sharding]\n" + threshold).empty());
  EXPECT_EQ(
      refusals(codes, codes + threshold),
      std::vector<std::string>{
          "input.toml:9: sharding.persistence_threshold was 0 when the checkpoint was written and is 512 now "
          "(with sharding.gather_codes it decides which values are rounded)"});
  const std::string request = "[checkpoint]\noverride = [\"sharding.*\"]\n";
  EXPECT_TRUE(refusals(codes, codes + threshold + request).empty());
}

TEST(Resume, NamesOfKeysThatCannotChangeAreRefused) {
  const auto refusal = [](const std::string& names) {
    return deck_error("[checkpoint]\noverride = [\"" + names + "\"]\n");
  };
  const std::string unknown = refusal("optimizer.lrr"), never = refusal("model.num_*");
  EXPECT_EQ(unknown.find(
                "input.toml:8: checkpoint.override: \"optimizer.lrr\" is no key, and a pattern of none; did "
                "you mean \"optimizer.lr\"?; legal are run.seed, "),
            0u)
      << unknown;
  EXPECT_EQ(
      never.find("input.toml:8: checkpoint.override: \"model.num_*\" can never change on resume: the weights "
                 "and states are those of this model; legal are "),
      0u)
      << never;
  for (const char* names : {"optimizer.*", "run.steps", "evaluation.*", "*", "data.train"})
    EXPECT_EQ(refusal(names), "no error") << names;
}

TEST(Resume, LengthsCountOnFromAChange) {
  const Earlier earlier{.steps = 10, .samples = 80, .tokens = 80 * 512, .epochs = 1};
  const Deck tokens = deck_of("", {"--run.steps=0", "--run.tokens=81920", "--batch.global=16"}),
             epochs = deck_of("", {"--run.steps=0", "--run.epochs=3", "--batch.global=16"});
  EXPECT_EQ(total_steps(tokens, 80, earlier), 15) << "40960 tokens are left";
  EXPECT_EQ(total_steps(epochs, 80, earlier), 20) << "160 sequences are left";
  EXPECT_EQ(total_steps(epochs, 80), 15);
  EXPECT_EQ(tokens_of(tokens, 96, earlier), 96 * 512);
  EXPECT_EQ(epochs_of(120, 80, earlier), 1.5);
}

TEST(Resume, PathsMayMakeTheSavedDeckLargerThanAUsersMayBe) {
  Deck deck = on_ranks("", 4);
  for (int i = 0; i < 1'200; ++i)
    deck.data.train.push_back(fmt::format("/{}/{}.bin", std::string(1000, 'a'), i));
  const std::string saved = resolved_toml(deck);
  EXPECT_GT(saved.size(), 1u << 20);
  EXPECT_TRUE(forbidden(changes_on_resume(deck, saved)).empty());
}

TEST(Config, ListsOnTheCommandLineNeedNoBrackets) {
  const auto given = [](const std::string& words) { return deck_of("", {words}); };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(given("--data.train=/a.h5,/b/*.h5").data.train, (Strings{"/a.h5", "/b/*.h5"}));
  EXPECT_EQ(given("--data.train=/the data/[ab].h5").data.train, Strings{"/the data/[ab].h5"});
  EXPECT_EQ(given("--data.train=\"/a,b.h5\"").data.train, Strings{"/a,b.h5"});
  EXPECT_EQ(given("--data.train=\"/a,b.h5\",\"/c.h5\"").data.train, (Strings{"/a,b.h5", "/c.h5"}));
  EXPECT_EQ(given("--data.train=[\"/a.h5\"]").data.train, Strings{"/a.h5"});
  EXPECT_EQ(given("--data.weights=1").data.weights, std::vector<double>{1});
  EXPECT_EQ(deck_of("", {"--data.train=/a,/b", "--data.weights=1, 0.5"}).data.weights,
            (std::vector<double>{1, 0.5}));
  EXPECT_EQ(given("--optimizer.betas=0.8,0.9").optimizer.beta2, 0.9);
  EXPECT_NE(deck_error("", {"--recompute.pieces=ffn,nor"}).find("[\"ffn\", \"nor\"] is not legal"),
            std::string::npos)
      << deck_error("", {"--recompute.pieces=ffn,nor"});
  EXPECT_TRUE(given("--data.weights=").data.weights.empty());
}

}  // namespace
}  // namespace ztrain::config::config_texts_test
