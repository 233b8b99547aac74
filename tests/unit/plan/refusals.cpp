// Every refusal of a combination of legal values is a row of the table that docs/inputs.md prints.

#include "config/validate/refusals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "config/fields/fields.hpp"
#include "config/text/load.hpp"
#include "config/validate/validate.hpp"
#include "plan/setup.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::plan::refusals_test {
namespace {

using Values = std::vector<std::string>;

/// Legal values of a key, as TOML: its choices, or numbers about as large as those of a small model.
Values values_of(const config::Field& field) {
  const std::string type = config::type_name(field);
  const bool list = type == "list of strings";
  Values values;
  for (const std::string& choice : field.legal.choices)
    values.push_back(list ? "[\"" + choice + "\"]" : "\"" + choice + "\"");
  if (list && values.size() > 1) values.push_back("[]");
  if (type == "boolean") values = {"true", "false"};
  if (field.legal.minus_one) values.push_back("-1");
  for (const int number : {0, 1, 2, 3, 4, 8, 12, 17})
    if ((type == "integer" || type == "number") && number >= field.legal.least &&
        number <= field.legal.most && !(field.legal.open_least && number == field.legal.least) &&
        !(field.legal.open_most && number == field.legal.most))
      values.push_back(std::to_string(number));
  return values;
}

/// A small model, and a few keys with values drawn at random.
Values random_keys(std::mt19937& random) {
  static const std::vector<config::Field> drawn = [] {
    std::vector<config::Field> some;
    for (const config::Field& field : config::fields())
      if (!values_of(field).empty() && !field.key.ends_with(".preset")) some.push_back(field);
    return some;
  }();
  Values keys{"--model.hidden_size=32",      "--model.intermediate_size=48",
              "--model.num_hidden_layers=4", "--model.num_attention_heads=4",
              "--model.vocab_size=64",       "--data.sequence=16",
              "--lora.random_base=true",     "--batch.global=24"};
  std::map<std::string, std::string> chosen;
  for (int i = 0; i < 6; ++i) {
    const config::Field& field = drawn[random() % drawn.size()];
    const Values values = values_of(field);
    chosen[field.key] = values[random() % values.size()];
  }
  for (const auto& [key, value] : chosen) keys.push_back("--" + key + "=" + value);
  return keys;
}

int ranks_of(const config::Mesh& m) {
  std::int64_t ranks = 1;
  for (const std::int64_t degree : {m.pipeline, m.replicate, m.shard, m.context, m.tensor})
    ranks *= std::max<std::int64_t>(1, degree);
  return static_cast<int>(ranks);
}

/// What is checked before anything is compiled; "no error" where nothing is refused.
std::string told_of(const Values& keys) {
  return test::error_of([&] {
    config::Deck deck = config::parse_deck("[data]\ntrain = [\"x.bin\"]\n[run]\nsteps = 100\n", "deck.toml",
                                           keys, config::Files::elsewhere);
    config::validate_for_ranks(deck, ranks_of(deck.mesh), 8);
    job_spec(deck, Target::cpu);
    training_graph(deck);
  });
}

TEST(Refusals, OfRandomDecksAreRowsOfTheTable) {
  std::mt19937 random(7);
  std::set<std::string_view> met;
  for (int deck = 0; deck < 1500; ++deck) {
    const Values keys = random_keys(random);
    std::istringstream lines(told_of(keys));
    for (std::string line; std::getline(lines, line);) {
      if (line == "no error" || line.starts_with("the deck has ")) continue;
      const config::Refusal* row = config::refusal_of(line);
      EXPECT_NE(row, nullptr) << line << "\n" << testing::PrintToString(keys);
      if (row != nullptr) met.insert(row->keys);
    }
  }
  EXPECT_GE(met.size(), 25U);
}

TEST(Refusals, NameKeysOfTheDeckAndAreFoundByTheirMessages) {
  std::set<std::string_view> rows;
  for (const config::Refusal& row : config::refusals()) {
    EXPECT_TRUE(rows.insert(row.keys).second) << row.keys << " are two rows";
    EXPECT_EQ(config::refusal_of(row.message), &row) << row.message;
    std::istringstream keys{std::string(row.keys)};
    int count = 0;
    for (std::string key; keys >> key; ++count)
      EXPECT_TRUE(key.ends_with(".*") || config::find_field(key) != nullptr) << key;
    EXPECT_GE(count, 2) << row.keys << " is no combination";
  }
  EXPECT_EQ(config::refusal_of("optimizer.lr = 0 is not legal"), nullptr);
}

}  // namespace
}  // namespace ztrain::plan::refusals_test
