// Random decks as `ztrain check` takes them: each is proven for all of its ranks, or refused by a sentence
// that names a key.
//
// ZTRAIN_RANDOM_DECKS is "FIRST:COUNT", seeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "base/error.hpp"
#include "config/fields/fields.hpp"
#include "config/text/load.hpp"
#include "config/validate/validate.hpp"
#include "plan/setup.hpp"
#include "program/jobs/compile.hpp"
#include "tests/random/draw.hpp"
#include "tests/random/refusal.hpp"
#include "tests/random/rows.hpp"

namespace ztrain::random_decks {
namespace {

/// What refuses a deck on its ranks, "" where it is proven.
std::string refusal_of(const Words& words, int ranks) try {
  config::Deck deck = config::parse_deck(base_deck("data"), "deck.toml", words, config::Files::elsewhere);
  config::validate_for_ranks(deck, ranks, ranks);
  program::verify_job(plan::training_graph(deck), plan::job_spec(deck, build_target()));
  return "";
} catch (const Error& e) {
  return e.what();
}

TEST(RandomDecks, HaveEveryKey) {
  for (const config::Field& field : config::fields()) {
    const auto is_drawn = [&](const std::vector<Row>& rows) {
      return std::ranges::find(rows, field.key, &Row::key) != rows.end();
    };
    const bool out = std::ranges::any_of(left_out(), [&](std::string_view key) {
      return key == field.key || (key.ends_with(".") && field.key.starts_with(key));
    });
    EXPECT_TRUE(is_drawn(numerics()) || is_drawn(placement()) || out)
        << field.key << " needs a row in tests/random/rows.cpp";
  }
  for (const auto* rows : {&numerics(), &placement()})
    for (const Row& row : *rows) EXPECT_NE(config::find_field(row.key), nullptr) << row.key;
}

TEST(RandomDecks, AreProvenOrRefusedByAKey) {
  const char* given = std::getenv("ZTRAIN_RANDOM_DECKS");
  const std::string text = given ? given : "0:600";
  const std::size_t colon = text.find(':');
  const std::uint64_t first = std::stoull(text), count = std::stoull(text.substr(colon + 1));
  std::map<std::string, int> refusals;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Sample sample = draw(seed);
    const std::string refusal = refusal_of(sample.words("data", "output"), sample.ranks);
    if (refusal.empty()) continue;
    ++refused;
    ++refusals[key_of(refusal)];
    EXPECT_TRUE(is_of_a_deck(refusal)) << text_of(sample) << "\nis refused by no row of the table:\n"
                                       << refusal;
  }
  std::printf("%llu of %llu are refused\n", static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(count));
  for (const auto& [key, times] : refusals) std::printf("%6d name %s\n", times, key.c_str());
  EXPECT_LT(refused, count / 2) << "most random decks must be legal to test anything";
}

}  // namespace
}  // namespace ztrain::random_decks
