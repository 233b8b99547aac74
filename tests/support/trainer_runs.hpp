#pragma once
// Runs of a trainer in a folder of their own, and what they leave and print.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/text/load.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "train/trainer.hpp"

namespace ztrain::test {

using Words = std::vector<std::string>;

inline constexpr const char* deck_of_runs = R"([data]
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
)";

/// A step moves no weight: the rate is the least that fp32 holds well, and eps keeps zeros zero.
inline const Words still{"--optimizer.lr=1e-37", "--optimizer.eps=1e9", "--optimizer.weight_decay=0"};

/// What a run leaves, as rank 0 reads it; others find nothing.
struct Left {
  std::map<std::int64_t, nlohmann::json> steps, evaluations;  ///< lines of metrics.jsonl, by step
  nlohmann::json checkpoint;                                  ///< metadata of the last
  std::string text;                                           ///< all that it printed

  std::vector<double> numbers(const char* key) const {
    std::vector<double> all;
    for (const auto& [step, line] : steps)
      all.push_back(line.at(key).is_null() ? NAN : line.at(key).get<double>());
    return all;
  }
};

class TrainerRuns : public testing::Test {
 protected:
  TrainerRuns() {
    if (session().rank() == 0) {
      std::uint32_t state = 1;
      for (const auto& [name, size] :
           {std::pair{"train.txt", 4000}, {"some.txt", 16 * 7 + 1}, {"more.txt", 16 * 3 + 1}})
        for (std::ofstream file(folder_.file(name)); file.tellp() < size; state = state * 1103515245 + 12345)
          file << static_cast<char>('a' + (state >> 16) % 23);
      std::ofstream(folder_.file("window.txt")) << "seventeen letters";
    }
    session().barrier();
  }

  Left run(const std::string& name, std::int64_t steps, Words words, const Words& more = {}) {
    const std::string output = folder_.file(name);
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--run.output=" + output, fmt::format("--run.steps={}", steps)});
    Left left;
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const lines = told() ? open_memstream(&text, &size) : nullptr;
    {
      telemetry::Console console({.lines = lines});
      telemetry::Watchdog watchdog(0);
      train::Trainer(session(), console, watchdog,
                     config::parse_deck(deck_of_runs, folder_.file("deck.toml"), words), "0")
          .run();
    }
    if (!told()) return left;
    std::fclose(lines);
    left.text = text;
    std::free(text);
    read(output, left);
    return left;
  }
  std::string at(const std::string& name) const { return folder_.file(name); }
  static bool told() { return session().rank() == 0; }

  FolderOfRanks folder_;

 private:
  static void read(const std::string& output, Left& left) {
    std::ifstream file(output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json record = parse_json(line, "metrics");
      (record.contains("loss") ? left.steps : left.evaluations)[record.at("step")] = record;
    }
    if (const auto newest = checkpoint::newest(output + "/checkpoints"))
      left.checkpoint = checkpoint::read_metadata(*newest);
  }
};

}  // namespace ztrain::test
