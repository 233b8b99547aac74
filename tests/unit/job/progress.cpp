// What a checkpoint records beside its tensors: what is written can be read.
#include "job/progress.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::job::progress_test {
namespace {

/// With so many paths of a thousand characters.
config::Deck with_files(int count) {
  config::Deck deck = config::deck_of();
  for (int i = 0; i < count; ++i)
    deck.data.train.push_back(fmt::format("/{}/{}.bin", std::string(1000, 'a'), i));
  return deck;
}

std::string refusal(const config::Deck& deck) {
  try {
    require_readable_metadata(deck, {});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Metadata, HoldsADeckLargerThanAUsersMayBe) {
  const config::Deck deck = with_files(1'200);
  EXPECT_EQ(refusal(deck), "");
  const nlohmann::json metadata = to_metadata({}, deck, {}, "1.0.0");
  EXPECT_GT(metadata.at("deck").get<std::string>().size(), 1u << 20);
  EXPECT_EQ(deck_of(metadata, "step_1").data.train, deck.data.train);
}

TEST(Metadata, ThatCouldNotBeReadIsRefused) {
  const std::string message = refusal(with_files(17'000));
  EXPECT_TRUE(message.starts_with("the deck has 1")) << message;
  EXPECT_TRUE(
      message.ends_with("name the files of data.train and data.validation by patterns, such as "
                        "'folder/*.bin'"))
      << message;
}

}  // namespace
}  // namespace ztrain::job::progress_test
