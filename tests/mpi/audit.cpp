// Silent corruption: a bit that changes on its own is found, named and mended. It is planted in what an op of
// the step has written: the linker hands the binding of ops to this file first.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "config/text/load.hpp"
#include "engine/kernel_table.hpp"
#include "program/jobs/compile.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "train/trainer.hpp"

namespace ztrain::audit_test {
namespace {

using engine::Binding;
using engine::Bound;
using test::session;

/// A bit of the first result of one op of the train Program changes once, when the op has run so often.
struct Flip {
  std::function<bool(const Binding&)> wanted;
  int rank = 0, run = 0;
  int runs = 0;  ///< so far
  bool bound = false;
};
Flip* planted = nullptr;

Bound with_flip(const Binding& b, Bound bound) {
  if (!planted || planted->bound || b.program.name != program::train_name || !bound.launch ||
      planted->rank != b.program.rank || !planted->wanted(b))
    return bound;
  planted->bound = true;
  bound.launch = [launch = std::move(bound.launch), bits = b.output<std::uint32_t>(0)] {
    launch();
    if (++planted->runs == planted->run) bits[1] ^= 1u << 20;
  };
  return bound;
}

bool writes_weights(const Binding& b) {
  return !b.op.outputs.empty() && b.out(0).name == "param.model.layers.0";
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
  const auto flip = [] { return Flip{.wanted = writes_weights, .rank = 1, .run = 5}; };
  const Left straight = run("straight", words);
  Flip unseen = flip(), seen = flip();
  const Left wrong = run("wrong", words, &unseen), mended = run("mended", audited, &seen);
  if (session().rank() == 1) {
    EXPECT_GT(seen.runs, 8) << "steps are taken again";
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
  const auto flip = [](int at) { return Flip{.wanted = writes_weights, .rank = 1, .run = at}; };
  Flip before_save = flip(5), before_end = flip(8), unlimited = flip(2);
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
  expect_has(refused.printed, "the run has gone back 0 times (watchdog.audit_limit), and ends");
}

}  // namespace
}  // namespace ztrain::audit_test

// Names that the linker gives these: `--wrap`.
ztrain::engine::Bound real_bind(const ztrain::engine::Binding& b) asm("__real_" ZTRAIN_BIND);
ztrain::engine::Bound wrapped_bind(const ztrain::engine::Binding& b) asm("__wrap_" ZTRAIN_BIND);

ztrain::engine::Bound wrapped_bind(const ztrain::engine::Binding& b) {
  return ztrain::audit_test::with_flip(b, real_bind(b));
}
