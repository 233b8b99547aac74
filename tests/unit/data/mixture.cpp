// Mixtures of sources: exact shares, every row once per epoch of its source, and sets of their own.
#include "data/mixture.hpp"

#include <set>

#include "data/datasets.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::mixture_test {
namespace {

using Mixtures = Data;
using Shares = std::vector<std::int64_t>;

TEST(Mixture, WeightsBecomeTheSmallestWholeShares) {
  EXPECT_EQ(shares_of({3, 1}), (Shares{3, 1}));
  EXPECT_EQ(shares_of({0.7, 0.3}), (Shares{7, 3}));
  EXPECT_EQ(shares_of({6, 2, 4}), (Shares{3, 1, 2}));
  EXPECT_EQ(shares_of({5}), (Shares{1}));
  EXPECT_EQ(shares_of({0.3333, 0.6667}), (Shares{3333, 6667}));
  EXPECT_EQ(
      error_of([] {
        shares_of({1, 1e-7});
      }),
      "data.weights = [1, 1e-07] cannot be kept exactly over 100000 sequences; give whole numbers or fewer "
      "digits, such as [1000, 1]");
}

TEST(Mixture, SharesAreExactOverEveryPeriodAndEven) {
  const Shares shares{5, 1, 3};
  for (const std::int64_t seed : {1, 2, 3}) {
    const Mixture mixture(shares, seed);
    Shares next(3, 0);
    std::vector<std::size_t> drawn;
    for (std::int64_t i = 0; i < 90; ++i) {
      const auto [source, number] = mixture(i);
      EXPECT_EQ(number, next[source]++) << i;  // counts without a gap
      drawn.push_back(source);
    }
    for (std::size_t begin = 0; begin + 9 <= drawn.size(); ++begin)  // periods from anywhere
      for (std::size_t s = 0; s < 3; ++s)
        EXPECT_EQ(std::count(drawn.begin() + static_cast<std::int64_t>(begin),
                             drawn.begin() + static_cast<std::int64_t>(begin) + 9, s),
                  shares[s]);
    for (std::size_t i = 0; i + 3 <= drawn.size(); ++i)  // 5 of 9: never three others in a row
      EXPECT_NE(std::count(drawn.begin() + static_cast<std::int64_t>(i),
                           drawn.begin() + static_cast<std::int64_t>(i) + 3, 0u),
                0);
  }
}

TEST_F(Mixtures, EachSourceHasEpochsOfItsOwn) {
  write_ids<std::uint16_t>("a.bin", count_up(0, 41));     // 10 windows of 4
  write_ids<std::uint16_t>("b.bin", count_up(100, 129));  // 7
  const config::Deck mixed =
      deck("[\"" + at("a.bin") + "\", \"" + at("b.bin") + "\"]",
           {"--data.weights=[2, 1]", "--model.vocab_size=200", "--data.validation_fraction=0"});
  const Datasets sets = open_datasets(mixed);
  const Sampler sampler = make_sampler(mixed, sets);
  EXPECT_EQ(sampler.rows_per_epoch(), 17);
  std::vector<std::vector<std::int64_t>> rows(2);
  Batch batch(4);
  for (std::int64_t i = 0; i < 60; ++i) {
    const auto [source, row] = sampler.draw(i);
    rows[source].push_back(row);
    sampler.fill(i, 1, batch.view());
    EXPECT_EQ(batch.tokens[0], static_cast<std::int32_t>(source) * 100 + 4 * row);
  }
  ASSERT_EQ(rows[0].size(), 40u);
  const auto epoch = [&](std::size_t source, std::int64_t begin, std::int64_t end) {
    return std::vector<std::int64_t>(rows[source].begin() + begin, rows[source].begin() + end);
  };
  const auto distinct = [](const std::vector<std::int64_t>& list) {
    return std::set<std::int64_t>(list.begin(), list.end()).size();
  };
  for (const std::int64_t e : {0, 1, 2, 3}) EXPECT_EQ(distinct(epoch(0, 10 * e, 10 * e + 10)), 10u);
  for (const std::int64_t e : {0, 1}) EXPECT_EQ(distinct(epoch(1, 7 * e, 7 * e + 7)), 7u);
  EXPECT_NE(epoch(0, 0, 10), epoch(0, 10, 20));
  EXPECT_EQ(describe(mixed, sets)[0].second, "a, 2 of 3 sequences: 10 windows of 4 tokens");
}

TEST_F(Mixtures, PartOfEachSourceIsHeldOut) {
  write_ids<std::uint16_t>("a.bin", count_up(0, 100));
  write_documents("b.h5", std::vector<std::int64_t>(20, 4));
  const Datasets sets = open_datasets(
      deck("[\"" + at("a.bin") + "\", \"" + at("b.h5") + "\"]",
           {"--data.weights=[1, 1]", "--model.vocab_size=200", "--data.validation_fraction=0.2"}));
  ASSERT_EQ(sets.validation.size(), 2u);
  EXPECT_EQ(sets.validation[0].name, "a");
  EXPECT_EQ(sets.validation[1].name, "b");
  EXPECT_EQ(sets.validation[1].rows->rows(), 4);
  EXPECT_EQ(sets.train[1].rows->rows(), 16);
}

/// Each is progress, to the watchdog too.
TEST_F(Mixtures, EachSetIsToldOf) {
  write_ids<std::uint16_t>("a.bin", count_up(0, 100));
  write_ids<std::uint16_t>("b.bin", count_up(0, 100));
  std::vector<std::string> told;
  const config::Deck mixed =
      deck("[\"" + at("a.bin") + "\", \"" + at("b.bin") + "\"]",
           {"--data.weights=[1, 1]", "--model.vocab_size=200", "--data.validation=" + at("a.bin")});
  open_datasets(mixed, [&](std::string_view next) { told.emplace_back(next); });
  EXPECT_EQ(told, (std::vector<std::string>{"data.train[0]", "data.train[1]", "data.validation",
                                            "rows of data.train[0]", "rows of data.train[1]",
                                            "rows of data.validation"}));
}

TEST_F(Mixtures, EntriesOfValidationAreSetsOfTheirOwn) {
  std::filesystem::create_directories(folder_ / "more");
  write_ids<std::uint16_t>("a.bin", count_up(0, 100));
  write_ids<std::uint16_t>("more/a.bin", count_up(0, 50));
  const Datasets sets = open_datasets(
      deck(at("a.bin"), {"--data.validation=[\"" + at("a.bin") + "\", \"" + at("more/a.bin") + "\"]",
                         "--model.vocab_size=200"}));
  ASSERT_EQ(sets.validation.size(), 2u);
  EXPECT_EQ(sets.validation[0].name, "a");
  EXPECT_EQ(sets.validation[1].name, at("more/a.bin"));
  EXPECT_NE(sets.validation[0].identity, sets.validation[1].identity);
  EXPECT_NE(error_of([&] {
              open_datasets(deck(at("a.bin"),
                                 {"--data.validation=[\"" + at("a.bin") + "\", \"" + at("no.bin") + "\"]"}));
            }).find("data.validation[1]: '"),
            std::string::npos);
}

TEST_F(Mixtures, WeightsMustMatchTheEntries) {
  EXPECT_EQ(
      error_of([&] { deck("[\"a.bin\", \"b.bin\"]", {"--data.weights=[1, 2, 3]"}); }),
      "command line: data.weights has 3 numbers for the 2 entries of data.train; give one for each, or none");
}

}  // namespace
}  // namespace ztrain::data::mixture_test
