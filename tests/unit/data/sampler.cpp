// The order of samples, micro-batches, and the split into training and validation data.
#include "data/sampler.hpp"

#include <cmath>
#include <set>

#include "data/datasets.hpp"
#include "data/rows/document_rows.hpp"
#include "data/rows/permutation.hpp"
#include "data/rows/window_rows.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::sampler_test {
namespace {

using Samples = Data;

std::shared_ptr<const WindowRows> windows(const std::string& file, std::int64_t begin, std::int64_t end,
                                          std::int64_t vocab_size = 200) {
  return std::make_shared<const WindowRows>(
      CheckedTokens{open_tokens({file}, "auto", "data.train"), "data.train", vocab_size}, begin, end, 4);
}

/// Tokens that are no file's, and the ranges that were asked for and read.
class ToldTokens : public TokenSource {
 public:
  struct Range {
    std::int64_t begin, end;
    bool operator==(const Range&) const = default;
  };
  std::int64_t size() const override { return 1000; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override {
    std::fill_n(out, count, 0);
    read_.push_back({begin, begin + count});
  }
  void read_ahead(std::int64_t begin, std::int64_t count) const override {
    asked_.push_back({begin, begin + count});
  }
  std::uint64_t identity() const override { return 0; }
  std::int64_t known_vocab() const override { return 0; }
  Place locate(std::int64_t position) const override { return {"made up", position}; }

  mutable std::vector<Range> read_, asked_;
};

/// All that lies in the ranges.
std::set<std::int64_t> tokens_in(const std::vector<ToldTokens::Range>& ranges) {
  std::set<std::int64_t> all;
  for (const auto& range : ranges)
    for (std::int64_t at = range.begin; at < range.end; ++at) all.insert(at);
  return all;
}

// ---- order

TEST(Permutation, IsABijectionThatRandomAccessReproduces) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 16, 17, 255, 256, 1000, 4097}) {
    const Permutation order(size, 42, 3);
    std::vector<std::int64_t> images;
    for (std::int64_t i = 0; i < size; ++i) images.push_back(order(i));
    std::vector<std::int64_t> sorted = images, expected(static_cast<std::size_t>(size));
    std::sort(sorted.begin(), sorted.end());
    std::iota(expected.begin(), expected.end(), std::int64_t{0});
    EXPECT_EQ(sorted, expected) << size;
    for (std::int64_t i = size - 1; i >= 0; --i)
      EXPECT_EQ(Permutation(size, 42, 3)(i), images[static_cast<std::size_t>(i)]);
  }
}

TEST(Permutation, DependsOnKeyAndStreamAndLooksRandom) {
  constexpr std::int64_t size = 10000;
  const Permutation a(size, 1, 0), b(size, 2, 0), c(size, 1, 1);
  std::int64_t same_key = 0, same_stream = 0, fixed = 0;
  double displacement = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    same_key += a(i) == b(i), same_stream += a(i) == c(i), fixed += a(i) == i;
    displacement += static_cast<double>(std::abs(a(i) - i)) / static_cast<double>(size * size);
  }
  EXPECT_LT(same_key, 10);
  EXPECT_LT(same_stream, 10);
  EXPECT_LT(fixed, 10);
  EXPECT_NEAR(displacement, 1.0 / 3, 0.02);
}

TEST(Sampler, AsksForWhatItReads) {
  const auto tokens = std::make_shared<ToldTokens>();
  const CheckedTokens checked{tokens, "data.train", 200};
  const auto packed = std::make_shared<PackedRows>();
  for (const Piece& piece :
       {Piece{.begin = 3, .length = 4, .trained = 4}, Piece{.begin = 700, .length = 2, .trained = 2},
        Piece{.begin = 40, .length = 8, .trained = 8, .continues = 1}})
    packed->pieces.push_back(piece);
  packed->first = {0, 1, 2, 3};
  const auto windows = std::make_shared<const WindowRows>(checked, 100, 500, 8);
  const auto documents = std::make_shared<const DocumentRows>(checked, packed, 8, RowRange{1, 3});
  std::vector<std::int32_t> ids(80), targets(80), positions(80), starts(80);
  std::vector<float> weights(80);
  const MicroBatch batch{ids.data(), targets.data(), weights.data(), positions.data(), starts.data()};
  for (const auto& source :
       {std::shared_ptr<const RowSource>(windows), std::shared_ptr<const RowSource>(documents)}) {
    const Sampler sampler({source}, {}, 7);
    for (std::int64_t first = 0; first < 20; first += 5) {
      tokens->read_.clear(), tokens->asked_.clear();
      sampler.read_ahead(first, 5);
      EXPECT_TRUE(tokens->read_.empty());
      sampler.fill(first, 5, batch);
      EXPECT_FALSE(tokens->asked_.empty());
      EXPECT_EQ(tokens_in(tokens->asked_), tokens_in(tokens->read_));
    }
  }
}

TEST_F(Samples, SamplerVisitsEachWindowOncePerEpoch) {
  const Sampler sampler({windows(write_ids<std::uint16_t>("a.bin", count_up(0, 103)), 0, 103)}, {}, 7);
  ASSERT_EQ(sampler.rows_per_epoch(), 25);  // 25 * 4 + 1 = 101 <= 103
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (std::int64_t i = 0; i < 75; ++i)
    epochs[static_cast<std::size_t>(i / 25)].push_back(sampler.draw(i).row);
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 25u);
    EXPECT_EQ(*std::max_element(epoch.begin(), epoch.end()), 24);
  }
}

TEST_F(Samples, EachEpochOfEachSourceUnderEachSeedHasAnOrderOfItsOwn) {
  constexpr std::int64_t sources = 3, epochs = 4, rows = 25;
  std::vector<std::shared_ptr<const RowSource>> alike;
  for (const char* name : {"a.bin", "b.bin", "c.bin"})
    alike.push_back(windows(write_ids<std::uint16_t>(name, count_up(0, 101)), 0, 101));
  std::set<std::vector<std::int64_t>> orders;
  for (const std::int64_t seed : {7, 8}) {
    const Sampler sampler(alike, {1, 1, 1}, seed);
    std::vector<std::vector<std::int64_t>> drawn(sources);
    for (std::int64_t i = 0; i < sources * epochs * rows; ++i)
      drawn[sampler.draw(i).source].push_back(sampler.draw(i).row);
    for (const auto& of_source : drawn) {
      ASSERT_EQ(std::ssize(of_source), epochs * rows);
      for (auto begin = of_source.begin(); begin != of_source.end(); begin += rows) {
        EXPECT_EQ(std::set<std::int64_t>(begin, begin + rows).size(), 25u) << "each row once";
        orders.emplace(begin, begin + rows);
      }
    }
  }
  EXPECT_EQ(std::ssize(orders), 2 * sources * epochs) << "two of them are the same";
}

// ---- batches

TEST_F(Samples, IdsOutsideTheVocabularyAreNamed) {
  Ids ids = count_up(0, 20);
  ids[13] = 300;
  const auto sets = open_datasets(deck(write_ids<std::uint16_t>("a.bin", ids),
                                       {"--model.vocab_size=257", "--data.validation_fraction=0"}));
  const Sampler sampler({sets.train[0].rows}, {}, 1);
  Batch batch(16);
  EXPECT_EQ(
      error_of([&] { sampler.fill(0, 4, batch.view()); }),
      "data.train: token 13 of '" + at("a.bin") +
          "' has id 300, which is not below model.vocab_size (257); check model.vocab_size and data.format");
  // Token 16 is a target only, the last of the fourth window.
  ids = count_up(0, 17);
  ids[16] = 257;
  const auto rows = windows(write_ids<std::uint16_t>("b.bin", ids), 0, 17, 257);
  EXPECT_NE(error_of([&] { fill_in_order(*rows, 0, 4, batch.view()); }).find("token 16 of"),
            std::string::npos);
  ids[16] = -1;
  const auto signed_ids = windows(write_ids<std::uint32_t>("c.bin", ids, {20240801, 7, 17}), 0, 17, 257);
  const std::string message = error_of([&] { fill_in_order(*signed_ids, 0, 4, batch.view()); });
  EXPECT_NE(message.find("has id -1 (4294967295 where ids have no sign)"), std::string::npos) << message;
}

/// Though tokens have 32 bits in memory.
TEST_F(Samples, IdsOutsideTheVocabularyAreToldAsTheFileHasThem) {
  const auto error = [&](const auto& ids, hid_t type) {
    const hid_t file = H5Fcreate(at("a.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    add_dataset("a.h5", "tokens", type, ids);
    Batch batch(4);
    return error_of([&] { windows(at("a.h5"), 0, 5, 257)->fill(0, row_of(batch.view(), 0, 4)); });
  };
  const std::int64_t far = std::int64_t{1} << 40;
  EXPECT_NE(
      error(std::vector<std::int64_t>{1, 2, far, 3, 4}, H5T_NATIVE_INT64).find(" has id 1099511627776,"),
      std::string::npos);
  EXPECT_NE(
      error(std::vector<std::int64_t>{1, 2, -far, 3, 4}, H5T_NATIVE_INT64).find(" has id -1099511627776,"),
      std::string::npos);
  const std::string message =
      error(std::vector<std::uint64_t>{1, 2, ~std::uint64_t{0}, 3, 4}, H5T_NATIVE_UINT64);
  EXPECT_NE(message.find("token 2 of '" + at("a.h5") + "' has id 18446744073709551615,"), std::string::npos)
      << message;
}

TEST_F(Samples, MicroBatchesHoldWindowsWhateverTheSplit) {
  const Sampler sampler({windows(write_ids<std::uint16_t>("a.bin", count_up(0, 101)), 0, 101)}, {}, 7);
  Batch batch(12);
  sampler.fill(30, 3, batch.view());
  for (std::size_t r = 0; r < 3; ++r) {
    const auto begin = static_cast<std::int32_t>(4 * sampler.draw(30 + static_cast<std::int64_t>(r)).row);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t at = 4 * r + i;
      EXPECT_EQ(batch.tokens[at], begin + static_cast<std::int32_t>(i));
      EXPECT_EQ(batch.targets[at], batch.tokens[at] + 1);
      EXPECT_EQ(batch.weights[at], 1.0f);
      EXPECT_EQ(batch.positions[at], static_cast<std::int32_t>(i));
      EXPECT_EQ(batch.starts[at], static_cast<std::int32_t>(4 * r));
    }
  }
  Batch alone(4);
  sampler.fill(31, 1, alone.view());
  EXPECT_TRUE(std::equal(alone.tokens.begin(), alone.tokens.end(), batch.tokens.begin() + 4));
}

TEST_F(Samples, EvaluationRunsInOrderAndPadsItsEnd) {
  const auto rows = windows(write_ids<std::uint16_t>("a.bin", count_up(0, 109)), 100, 109);
  ASSERT_EQ(rows->rows(), 2);
  Batch batch(12);
  fill_in_order(*rows, 0, 3, batch.view());
  EXPECT_EQ(Ids(batch.tokens.begin(), batch.tokens.begin() + 8), count_up(100, 108));
  EXPECT_EQ(Ids(batch.targets.begin(), batch.targets.begin() + 8), count_up(101, 109));
  EXPECT_EQ(std::accumulate(batch.weights.begin(), batch.weights.end(), 0.0f), 8.0f);
  for (std::size_t i = 8; i < 12; ++i) {
    EXPECT_EQ(batch.weights[i], 0.0f);
    EXPECT_EQ(batch.tokens[i], 0);
    EXPECT_EQ(batch.targets[i], 0);
    EXPECT_EQ(batch.starts[i], 8);
  }
}

// ---- datasets

TEST_F(Samples, ValidationIsHeldOutFromTheEnd) {
  write_ids<std::uint16_t>("a.bin", count_up(0, 1000));
  const auto sets =
      open_datasets(deck(at("a.bin"), {"--model.vocab_size=1000", "--data.validation_fraction=0.1"}));
  const auto range = [](const RowSet& set) {
    const auto& rows = dynamic_cast<const WindowRows&>(*set.rows);
    return std::pair(rows.begin(), rows.end());
  };
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(range(sets.train[0]), Range(0, 900));
  ASSERT_EQ(sets.validation.size(), 1u);
  EXPECT_EQ(range(sets.validation[0]), Range(900, 1000));
  const auto least =
      open_datasets(deck(at("a.bin"), {"--model.vocab_size=1000", "--data.validation_fraction=1e-6"}));
  EXPECT_EQ(least.validation[0].rows->rows(), 1);
  EXPECT_NE(identity_of(least).train, identity_of(sets).train);
  const auto none =
      open_datasets(deck(at("a.bin"), {"--model.vocab_size=1000", "--data.validation_fraction=0"}));
  EXPECT_TRUE(none.validation.empty());
  EXPECT_EQ(range(none.train[0]), Range(0, 1000));
  write_ids<std::uint16_t>("v.bin", count_up(0, 50));
  const auto own =
      open_datasets(deck(at("a.bin"), {"--model.vocab_size=1000", "--data.validation=" + at("v.bin")}));
  EXPECT_EQ(range(own.train[0]), Range(0, 1000));
  EXPECT_EQ(range(own.validation[0]), Range(0, 50));
}

TEST_F(Samples, DatasetsRefuseWhatCannotBeTrainedOn) {
  write("a.txt", "four");
  write("b.txt", "seven..");
  write_ids<std::uint16_t>("a.bin", count_up(0, 1000));
  const auto error = [&](const std::string& train, const std::vector<std::string>& more) {
    return error_of([&] { open_datasets(deck(at(train), more)); });
  };
  EXPECT_EQ(error("a.txt", {"--data.validation_fraction=0"}),
            "data.train has 4 tokens, fewer than one window of data.sequence + 1 = 5");
  EXPECT_EQ(error("b.txt", {}),
            "data.train has 7 tokens; data.validation_fraction (0.01) holds out 5 of them, and the rest is "
            "fewer than one "
            "window of data.sequence + 1 = 5: give more data, data.validation, or a shorter data.sequence");
  EXPECT_EQ(error("b.txt", {"--data.validation=" + at("a.txt")}),
            "data.validation has 4 tokens, fewer than one window of data.sequence + 1 = 5");
  EXPECT_EQ(
      error("a.bin", {}),
      "model.vocab_size is 0, and the files of data.train do not say it (text, llm.c's files and those of "
      "tools/prepare_data.py do): give it");
  EXPECT_EQ(open_datasets(deck(at("b.txt"), {"--data.validation_fraction=0"})).vocab_size, 257);
}

TEST_F(Samples, ShippedDecksFindTheirData) {
  for (const std::string path : {"inputs/smoke.toml", "inputs/quickstart.toml"}) {
    const config::Deck shipped = config::load_deck(path);
    const Datasets sets = open_datasets(shipped);
    const Sampler sampler = make_sampler(shipped, sets);
    Batch batch(static_cast<std::size_t>(shipped.data.sequence));
    EXPECT_NO_THROW(sampler.fill(0, 1, batch.view())) << shipped.path;
    EXPECT_GT(sampler.rows_per_epoch(), shipped.batch.global) << shipped.path;
  }
}

}  // namespace
}  // namespace ztrain::data::sampler_test
