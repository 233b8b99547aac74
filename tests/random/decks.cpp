// Random decks on their mesh, held against the same numerics on one rank, and checkpoints that one deck
// wrote and another goes on from. The run on one rank comes first, and leaves its results in a folder.
//
// ZTRAIN_RANDOM_DECKS is "FIRST:COUNT", seeds, or a file with a sample on each line (draw.hpp, text_of).

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "kernels/launch/exec.hpp"
#include "tests/random/compare.hpp"
#include "tests/random/refusal.hpp"
#include "tests/random/train.hpp"
#include "tests/support/mpi_main.hpp"
#include "train/export_model.hpp"

namespace ztrain::random_decks {
namespace {

namespace fs = std::filesystem;
using test::session;

constexpr std::int64_t steps = 3, saved_step = 2;

struct Case {
  std::string name;  ///< of its folder
  Sample sample;
};

Case case_of(Sample sample) {
  std::string name = std::to_string(sample.seed);
  return {std::move(name), std::move(sample)};
}

std::string asked_for() {
  const char* given = std::getenv("ZTRAIN_RANDOM_DECKS");
  return given ? given : "0:60";
}

/// None of a file.
std::vector<std::uint64_t> seeds_of(const std::string& text) {
  std::vector<std::uint64_t> seeds;
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return seeds;
  seeds.resize(std::stoull(text.substr(colon + 1)));
  std::iota(seeds.begin(), seeds.end(), std::stoull(text));
  return seeds;
}

std::vector<Case> cases() {
  const std::string text = asked_for();
  std::vector<Case> all;
  for (const std::uint64_t seed : seeds_of(text)) all.push_back(case_of(draw(seed)));
  if (!all.empty()) return all;
  std::ifstream file(text);
  for (std::string line; std::getline(file, line);) all.push_back(case_of(sample_of(line)));
  return all;
}

class RandomDecks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    kernels::initialize_backend();
    if (session().size() > 1 || session().rank() > 0) return;
    fs::remove_all(folder());
    write_data(data());
  }
  static std::string folder() {
    const char* given = std::getenv("ZTRAIN_RANDOM_FOLDER");
    return given ? given : ZTRAIN_TEST_FOLDER "/random";
  }
  static std::string data() { return folder() + "/data"; }
  static std::string one_rank(const Case& c) { return folder() + "/" + c.name + "/one"; }
  static std::string here(const Case& c, const char* what) {
    return folder() + "/" + c.name + "/" + what + std::to_string(session().size());
  }
  /// A run that goes on with another learning rate has the weights and the states of one that does not.
  static void expect_same_state_at_another_rate(const Case& c, Words words) {
    const std::string run = here(c, "resumed"), other = here(c, "other_rate");
    words.insert(words.end(), {"--optimizer.lr=3e-5", "--checkpoint.override=optimizer.lr"});
    EXPECT_EQ(train(words, steps, data(), other), "");
    if (session().rank() > 0) return;
    for (const std::string& line : differences_before_update(other, run, saved_step)) ADD_FAILURE() << line;
  }
};

/// Rank 0's. The worst of each bound, told at the end.
struct Worst {
  std::map<std::string, Apart> of;
  int trained = 0, resumed = 0, refused = 0;

  void note(const std::string& name, const Apart& apart) {
    Apart& worst = of[name];
    worst.loss = std::max(worst.loss, apart.loss);
    worst.norm = std::max(worst.norm, apart.norm);
    worst.validation = std::max(worst.validation, apart.validation);
    worst.weights = std::max(worst.weights, apart.weights);
  }
  void print() const {
    std::printf("%d trained, %d resumed, %d refused\n", trained, resumed, refused);
    for (const auto& [name, apart] : of)
      std::printf("%s: loss %.2g, norm %.2g, validation %.2g, weights %.2g\n", name.c_str(), apart.loss,
                  apart.norm, apart.validation, apart.weights);
  }
};

/// Tells of a sample before it runs: one that crashes or hangs is the last that was told.
testing::ScopedTrace begin(const Case& c, const std::string& more = "") {
  const std::string text = text_of(c.sample);
  if (session().rank() == 0) std::printf("%s: %s\n", c.name.c_str(), text.c_str());
  std::fflush(stdout);
  return {__FILE__, __LINE__, text + more};
}

/// Behind step `from`.
void expect_alike(const Case& c, const std::string& run, const std::string& expected, std::int64_t from,
                  Worst& worst) {
  if (session().rank() > 0) return;
  ASSERT_TRUE(fs::exists(expected)) << "one rank was refused";
  const Bound bound = bound_of(c.sample.numerics);
  Apart apart;
  for (const std::string& line : differences(run, expected, from, bound, apart)) ADD_FAILURE() << line;
  worst.note(bound.name, apart);
}

/// Codes of gradients are those of the mesh: strategy, units, buckets, offload and recomputation change none.
void expect_bits_of_mesh(const Case& c, const std::string& run, const std::string& plain,
                         const std::string& data) {
  ASSERT_EQ(train(c.sample.plain_on_this_mesh(data), steps, data, plain), "");
  if (session().rank() > 0) return;
  Apart apart;
  for (const std::string& line : differences(run, plain, 0, {"the same mesh", {}, 0, false}, apart))
    ADD_FAILURE() << line << " beside the same mesh";
}

void expect_refusal_of_deck(const std::string& refusal, Worst& worst) {
  ++worst.refused;
  if (session().rank() > 0) return;
  std::printf("refused: %s\n", refusal.c_str());
  EXPECT_TRUE(is_of_a_deck(refusal)) << refusal;
}

/// For random_decks.py, which runs samples again.
TEST_F(RandomDecks, DISABLED_Print) {
  for (const Case& c : cases()) std::printf("sample %s\n", text_of(c.sample).c_str());
}

TEST_F(RandomDecks, TrainOnOneRank) {
  if (session().size() > 1) GTEST_SKIP() << "the test with one rank does";
  for (const Case& c : cases()) {
    const testing::ScopedTrace trace = begin(c);
    const std::string refusal = train(c.sample.of_one_rank(data()), steps, data(), one_rank(c));
    EXPECT_TRUE(refusal.empty() || is_of_a_deck(refusal)) << refusal;
    if (!refusal.empty()) fs::remove_all(one_rank(c));
  }
}

TEST_F(RandomDecks, TrainAsOneRankDoes) {
  Worst worst;
  for (const Case& c : cases()) {
    if (c.sample.ranks != session().size()) continue;
    const testing::ScopedTrace trace = begin(c);
    const std::string run = here(c, "run");
    const std::string refusal = train(c.sample.words(data(), run), steps, data(), run);
    if (!refusal.empty()) {
      expect_refusal_of_deck(refusal, worst);
      continue;
    }
    ++worst.trained;
    expect_alike(c, run, one_rank(c), 0, worst);
    if (c.sample.rounds_sums()) expect_bits_of_mesh(c, run, here(c, "plain"), data());
  }
  EXPECT_TRUE(worst.trained > 0 || worst.refused < 5) << "nothing was compared";
  if (session().rank() == 0) worst.print();
}

std::string step_folder(const std::string& run) {
  return run + "/checkpoints/step_" + std::to_string(saved_step);
}

/// Every third sample goes on from the checkpoint of one rank, every third from that of its own run with the
/// ranks placed in another way. Both are held against the run on one rank that was not interrupted.
TEST_F(RandomDecks, GoOnFromOthersCheckpoints) {
  Worst worst;
  for (const Case& c : cases()) {
    if (c.sample.ranks != session().size() || c.sample.seed % 3 == 2) continue;
    const bool anew = c.sample.seed % 3 == 1;
    const std::string saved = step_folder(anew ? here(c, "run") : one_rank(c));
    if (!fs::exists(saved)) continue;
    const Sample sample = anew ? placed_anew(c.sample, c.sample.seed + 1'000'000, c.sample.ranks) : c.sample;
    const testing::ScopedTrace trace = begin(c, anew ? "\n then " + text_of(sample) : "");
    const std::string run = here(c, "resumed");
    Words words = sample.words(data(), run);
    words.push_back("--checkpoint.resume=" + saved);
    const std::string refusal = train(words, steps, data(), run);
    if (!refusal.empty()) {
      expect_refusal_of_deck(refusal, worst);
      continue;
    }
    ++worst.resumed;
    expect_alike(c, run, one_rank(c), saved_step, worst);
    if (c.sample.seed % 6 == 0) expect_same_state_at_another_rate(c, words);
  }
  if (session().rank() == 0) worst.print();
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Every third sample: what its ranks export of the checkpoint of one rank is what one rank exports.
TEST_F(RandomDecks, ExportWhatOneRankDoes) {
  for (const Case& c : cases()) {
    const int ranks = session().size();
    const bool of_one = ranks == 1;
    if (c.sample.seed % 3 != 2 || (!of_one && c.sample.ranks != ranks) ||
        !fs::exists(step_folder(one_rank(c))))
      continue;
    const testing::ScopedTrace trace = begin(c);
    const std::string expected = folder() + "/" + c.name + "/exported",
                      found = expected + (of_one ? "" : std::to_string(ranks));
    telemetry::Console silent;
    train::ExportRequest request;
    request.checkpoint = step_folder(one_rank(c));
    request.to = found;
    request.dtype = "fp32";
    request.max_shard_bytes = 60'000;
    std::string refusal;
    try {
      train::export_model(session(), silent, request);
    } catch (const Error& e) {
      refusal = e.what();
    }
    // Some models that train are none of their Hugging Face class, and nothing has drawn weights that a
    // checkpoint does not hold.
    EXPECT_TRUE(refusal.empty() || refusal.find("such a model is no ") != refusal.npos ||
                refusal.find("(lora.random_base)") != refusal.npos)
        << refusal;
    if (session().rank() > 0 || of_one || !refusal.empty()) continue;
    int files = 0;
    for (const auto& file : fs::directory_iterator(expected)) {
      EXPECT_EQ(bytes_of(file.path()), bytes_of(found / file.path().filename())) << file.path();
      ++files;
    }
    EXPECT_GT(files, 1);
  }
}

}  // namespace
}  // namespace ztrain::random_decks
