// Silent corruption: a bit that changes on its own is found, named and mended. It is planted in what an op of
// the step has written: the linker hands the binding of ops to this file first.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/shape.hpp"
#include "config/text/load.hpp"
#include "engine/kernel_table.hpp"
#include "kernels/linear/record.hpp"
#include "program/jobs/compile.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "train/trainer.hpp"

namespace ztrain::audit_test {
namespace {

using engine::Binding;
using engine::Bound;
using test::session;

std::uint32_t* first_result(const Binding& b) {
  return b.output<std::uint32_t>(0);
}

/// A bit changes once, when an op of the train Program has run so often.
struct Flip {
  std::function<bool(const Binding&)> wanted;
  int rank = 0, run = 0;
  std::uint32_t* (*where)(const Binding&) = first_result;
  bool asks_for_checkpoint = false;  ///< then
  int runs = 0;                      ///< so far
  bool bound = false;
};
Flip* planted = nullptr;

Bound with_flip(const Binding& b, Bound bound) {
  if (!planted || planted->bound || b.program.name != program::train_name || !bound.launch ||
      planted->rank != b.program.rank || !planted->wanted(b))
    return bound;
  planted->bound = true;
  bound.launch = [launch = std::move(bound.launch), bits = planted->where(b)] {
    launch();
    if (++planted->runs != planted->run) return;
    bits[1] ^= 1u << 20;
    if (planted->asks_for_checkpoint) kill(getpid(), SIGUSR2);
  };
  return bound;
}

const program::ParameterPlace& place_of_norm(const program::Program& program) {
  return *std::ranges::find(program.parameters, "model.layers.0.input_layernorm.weight",
                            &program::ParameterPlace::name);
}

bool writes_norm(const Binding& b) {
  const std::string& unit = b.program.units[at(place_of_norm(b.program).unit)];
  return !b.op.outputs.empty() && b.out(0).name == "param." + unit;
}

/// Where its weights begin in what an op has written that writes_norm.
std::uint32_t* norm_of(const Binding& b) {
  return first_result(b) + place_of_norm(b.program).begin;
}

bool makes_activations(const Binding& b) {
  return b.op.type == Linear::op;
}

bool makes_gradients_of_weights(const Binding& b) {
  return b.op.type == LinearGradWeight::op;
}

constexpr const char* base = R"([data]
train = ["train.txt"]
validation_fraction = 0
sequence = 16
[model]
hidden_size = 24
intermediate_size = 40
num_hidden_layers = 1
num_attention_heads = 2
vocab_size = 257
[precision]
preset = "fp32"
[batch]
global = 6
[run]
steps = 8
)";

using Words = std::vector<std::string>;

/// What a run printed and left, as rank 0 reads it; others find nothing.
struct Left {
  std::string printed, metrics, weights;
};

class Audit : public testing::Test {
 protected:
  Audit() {
    if (session().rank() == 0) {
      std::ofstream file(folder_.file("train.txt"));
      for (std::uint32_t state = 1; file.tellp() < 4000; state = state * 1103515245 + 12345)
        file << static_cast<char>('a' + (state >> 16) % 23);
    }
    session().barrier();
  }

  Left run(const std::string& name, Words words, Flip* flip = nullptr) {
    const std::string output = folder_.file(name);
    words.push_back("--run.output=" + output);
    planted = flip;
    std::FILE* const lines =
        session().rank() == 0 ? std::fopen(folder_.file("printed").c_str(), "w") : nullptr;
    {
      telemetry::Outlet outlet;
      outlet.lines = outlet.progress = lines;
      telemetry::Watchdog watchdog(0);
      telemetry::Console console(outlet);
      try {
        train::Trainer(session(), console, watchdog,
                       config::parse_deck(base, folder_.file("deck.toml"), words), "0")
            .run();
      } catch (const runtime::AgreedError& e) {
        console.print(e.what());
      }
    }
    planted = nullptr;
    if (session().rank() != 0) return {};
    std::fclose(lines);
    return {text_of(folder_.file("printed")), text_of(output + "/metrics.jsonl"),
            text_of(output + "/checkpoints/step_8/shard_0000.h5")};
  }
  std::string at(const std::string& name) const { return folder_.file(name); }
  static bool told() { return session().rank() == 0; }

 private:
  static std::string text_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  test::FolderOfRanks folder_;
};

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

TEST_F(Audit, FindsABitOfOneReplicasWeights) {
  const Words words{"--sharding.strategy=NO_SHARD"};
  Words audited = words;
  audited.push_back("--watchdog.audit_interval=3");
  // Steps 1 and 4 are taken twice: the seventh run is step 5.
  const auto flip = [](int at) {
    return Flip{.wanted = writes_norm, .rank = 1, .run = at, .where = norm_of};
  };
  const Left straight = run("straight", words);
  Flip unseen = flip(5), seen = flip(7);
  const Left wrong = run("wrong", words, &unseen), mended = run("mended", audited, &seen);
  if (session().rank() == 1) {
    EXPECT_GT(seen.runs, 11) << "steps are taken again";
    return;
  }
  if (!told()) return;
  EXPECT_FALSE(straight.weights.empty());
  EXPECT_FALSE(wrong.weights == straight.weights) << "the bit matters";
  EXPECT_TRUE(mended.weights == straight.weights);
  const std::string host = session().host();
  expect_has(mended.printed,
             session().size() == 2
                 ? fmt::format("rank 0 ({0}) and rank 1 ({0}) have different bytes, and which are wrong is "
                               "not known",
                               host)
                 : fmt::format("rank 1 ({}) has other bytes than the other {} ranks that hold copies", host,
                               session().size() - 1));
  expect_has(mended.printed, "step 6: silent corruption: weights of model.");
  expect_has(mended.printed, "; the run goes back to step 3\n");
  expect_has(mended.metrics, R"({"step":3,"went_back_from":6,"corruption":"weights of model.)");
}

/// What is the same on the ranks that share a layer stands among what each has a part of.
TEST_F(Audit, FindsABitOfWhatAllTensorRanksHave) {
  if (session().size() != 2) GTEST_SKIP() << "the model has two heads";
  const Words words{"--mesh.tensor=2", "--mesh.shard=1", "--watchdog.audit_interval=3"};
  Flip flip{.wanted = writes_norm, .rank = 1, .run = 7, .where = norm_of};
  const Left straight = run("straight", words), mended = run("mended", words, &flip);
  if (!told()) return;
  EXPECT_TRUE(mended.weights == straight.weights);
  expect_has(
      mended.printed,
      "step 6: silent corruption: weights of model.layers.0.input_layernorm.weight, elements 0 to 23: ");
  expect_has(mended.printed, "; the run goes back to step 3\n");
}

/// It is one that nothing but the op itself can tell of: all ranks take the same wrong gradients.
TEST_F(Audit, FindsABitOfOneOpsResult) {
  const Words words{"--sharding.strategy=FULL_SHARD"};
  Words audited = words;
  audited.push_back("--watchdog.audit_interval=3");
  const Left straight = run("straight", words);
  Flip unseen{.wanted = makes_gradients_of_weights, .rank = 1, .run = 4};
  const Left wrong = run("wrong", words, &unseen);
  if (told()) {
    EXPECT_FALSE(wrong.weights == straight.weights) << "the bit matters";
  }
  // Of steps 1 to 3 there are four runs: the fifth and sixth are those of step 4.
  for (const int at : {5, 6})
    for (const bool forward : {false, true}) {
      Flip flip{.wanted = forward ? makes_activations : makes_gradients_of_weights, .rank = 1, .run = at};
      const Left mended = run(fmt::format("mended_{}_{}", at, forward), audited, &flip);
      if (!told()) continue;
      EXPECT_TRUE(mended.weights == straight.weights);
      expect_has(
          mended.printed,
          fmt::format("step 4: silent corruption: the step was computed twice, and rank 1 ({}) has made "
                      "different things of the same: {} model.layers.0 micro ",
                      session().host(), forward ? "forward" : "backward"));
      expect_has(mended.printed, "; the run goes back to step 3\n");
      expect_has(mended.metrics, R"({"step":3,"went_back_from":4,)");
    }
}

/// Nothing is known of single ops there.
TEST_F(Audit, FindsABitOfAResultOfALateDevice) {
  const Words words{"--sharding.strategy=FULL_SHARD", "--watchdog.audit_interval=3",
                    "--debug.asynchronous=true"};
  Flip flip{.wanted = makes_gradients_of_weights, .rank = 1, .run = 5};
  const Left straight = run("straight", words), mended = run("mended", words, &flip);
  if (!told()) return;
  EXPECT_TRUE(mended.weights == straight.weights);
  expect_has(mended.printed,
             "step 4: silent corruption: the step was computed twice, and its results differ, whichever rank "
             "was wrong: weights of model.");
}

std::uint32_t* copy_of_state(const Binding& b) {
  return b.data<std::uint32_t>(b.program.find("snapshot.param.model.layers.0"));
}

TEST_F(Audit, DoesNotGoBackToACopyThatHasChanged) {
  Flip flip{.wanted = makes_gradients_of_weights, .rank = 1, .run = 1, .where = copy_of_state};
  const Left left = run("changed", {"--sharding.strategy=FULL_SHARD", "--watchdog.audit_interval=3"}, &flip);
  if (!told()) return;
  EXPECT_TRUE(left.weights.empty());
  expect_has(left.printed, fmt::format("the copy of the state of step 0 has changed in the memory of {}, so "
                                       "the run cannot go back to it",
                                       session().host()));
}

TEST_F(Audit, FindsNothingWhereNothingIsWrong) {
  const Left straight = run("straight", {});
  Words late{"--debug.asynchronous=true"},
      stored{"--offload.optimizer=nvme", "--offload.nvme_path=[\"" + at("store") + "\"]"};
  std::filesystem::create_directory(at("store"));
  for (Words* words : {&late, &stored}) {
    words->insert(words->end(), {"--watchdog.audit_interval=1", "--checkpoint.interval=3"});
    const Left audited = run("audited_" + words->front().substr(2, 3), *words);
    if (!told()) continue;
    EXPECT_EQ(audited.printed.find("corruption"), std::string::npos) << audited.printed;
    EXPECT_TRUE(audited.weights == straight.weights) << audited.printed;
  }
}

/// The signal comes behind this step or a later one: then the data of the next step have been read already.
TEST_F(Audit, SavesNoWrongStateWhenItIsAsked) {
  const Words words{"--sharding.strategy=NO_SHARD", "--watchdog.audit_interval=100"};
  Flip flip{.wanted = writes_norm, .rank = 1, .run = 4, .where = norm_of, .asks_for_checkpoint = true};
  const Left straight = run("straight", words), asked = run("asked", words, &flip);
  if (!told()) return;
  EXPECT_TRUE(asked.weights == straight.weights) << asked.printed;
  expect_has(asked.printed, ": silent corruption: weights of model.");
  expect_has(asked.printed, "; the run goes back to step 0\n");
}

/// Between two audits, where nothing that differs may reach a checkpoint; at the end, where none comes; and
/// of a run that is not to go back.
TEST_F(Audit, ComparesCopiesBeforeTheyAreSaved) {
  const Words rare{"--sharding.strategy=NO_SHARD", "--watchdog.audit_interval=100"};
  const Left straight = run("straight", rare);
  const auto words = [&](const char* more) {
    Words all = rare;
    all.emplace_back(more);
    return all;
  };
  const auto flip = [](int at) {
    return Flip{.wanted = writes_norm, .rank = 1, .run = at, .where = norm_of};
  };
  Flip before_save = flip(5), before_end = flip(8), unlimited = flip(3);
  const Left saved = run("saved", words("--checkpoint.interval=3"), &before_save),
             ended = run("ended", rare, &before_end),
             refused = run("refused", words("--watchdog.audit_limit=0"), &unlimited);
  if (!told()) return;
  EXPECT_EQ(straight.printed.find("corruption"), std::string::npos) << straight.printed;
  EXPECT_TRUE(saved.weights == straight.weights);
  expect_has(saved.printed, "step 6: silent corruption: ");
  expect_has(saved.printed, "; the run goes back to step 3\n");
  EXPECT_TRUE(ended.weights == straight.weights);
  expect_has(ended.printed, "step 8: silent corruption: ");
  expect_has(ended.printed, "; the run goes back to step 0\n");
  EXPECT_TRUE(refused.weights.empty()) << "a wrong state is saved";
  expect_has(refused.printed,
             "the run has gone back 0 times (watchdog.audit_limit), and ends; nodes to leave out: " +
                 (session().size() == 2 ? "not known" : session().host()) + ";");
}

}  // namespace
}  // namespace ztrain::audit_test

// Names that the linker gives these: `--wrap`.
ztrain::engine::Bound real_bind(const ztrain::engine::Binding& b) asm("__real_" ZTRAIN_BIND);
ztrain::engine::Bound wrapped_bind(const ztrain::engine::Binding& b) asm("__wrap_" ZTRAIN_BIND);

ztrain::engine::Bound wrapped_bind(const ztrain::engine::Binding& b) {
  return ztrain::audit_test::with_flip(b, real_bind(b));
}
