// What a run says of data that may not be what its author meant.
#include "data/datasets.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::warnings_test {
namespace {

TEST_F(Data, WhatADeckMayNotHaveMeantIsSaid) {
  const std::string text = write("a.txt", "text"), records = write("a.jsonl", "{}");
  EXPECT_TRUE(warnings_on(deck(text, {"--data.format=text"})).empty());
  const auto of_records = warnings_on(deck(records, {"--data.format=text"}));
  ASSERT_EQ(of_records.size(), 1u);
  EXPECT_EQ(
      of_records[0].find("warning: '" + records + "' holds records (JSON), and data.format = \"text\" "), 0u);
  EXPECT_NE(of_records[0].find("`tools/prepare_data.py " + records), std::string::npos);
  std::filesystem::create_symlink(text, at("same.txt"));
  const auto of_both = warnings_on(deck(text, {"--data.validation=" + at("*.txt")}));
  ASSERT_EQ(of_both.size(), 1u);
  EXPECT_EQ(of_both[0].find("warning: '" + text + "' is in data.validation and in data.train: "), 0u);
  EXPECT_EQ(warnings_on(deck(text, {"--data.validation=" + at("same.txt")})).size(), 1u);
}

TEST_F(Data, IdsOfASmallerVocabulary) {
  const std::string file = write_hdf5("a.h5", "tokens", count_up(0, 50));
  const std::int32_t own = 60;  // all of which 16 bits hold
  add_attribute("a.h5", "vocab_size", H5T_NATIVE_INT32, &own);
  const auto warnings = [&](const char* vocab) {
    return open_datasets(deck(file, {std::string("--model.vocab_size=") + vocab})).warnings;
  };
  EXPECT_EQ(warnings("65537"),
            std::vector{"warning: data.train: '" + file +
                        "' was written with 60 ids, and model.vocab_size is 65537: to a model of another "
                        "tokenizer its ids are other words"});
  EXPECT_TRUE(warnings("100").empty());
}

TEST_F(Data, TokensThatAreInNoRowAreTold) {
  const std::string file = write_documents("long.h5", {40, 4, 4, 4});
  const auto warnings = [&](const char* rule) {
    return open_datasets(deck(file, {"--model.vocab_size=300", std::string("--data.long_documents=") + rule}))
        .warnings;
  };
  const std::string begin = "warning: data.train: '" + file + "': ";
  const std::string end = "; data.long_documents = \"split\" keeps all";
  EXPECT_EQ(warnings("truncate"),
            std::vector{begin +
                        "36 of 52 tokens are not used: documents longer than data.sequence (4) are "
                        "truncated" +
                        end});
  EXPECT_EQ(warnings("drop"),
            std::vector{begin +
                        "40 of 52 tokens are not used: documents longer than data.sequence (4) are "
                        "dropped" +
                        end});
  EXPECT_TRUE(warnings("split").empty());
}

TEST_F(Data, TooFewRowsSayWhatIsInNone) {
  const auto error = [&](const std::string& file) {
    return error_of([&] { open_datasets(deck(file, {"--model.vocab_size=300"})); });
  };
  EXPECT_EQ(error(write_documents("long.h5", {2000})),
            "data.train: its documents fill 1 row of data.sequence = 4 tokens (1 of 1 truncated to it), and "
            "data.validation_fraction (0.01) holds out 1: give more data, data.validation, or "
            "data.long_documents = \"split\"");
  std::vector<std::uint8_t> mask(9, 0);
  mask[1] = 1;
  EXPECT_EQ(
      error(write_documents("masked.h5", {3, 3, 3}, mask)),
      "data.train: its documents fill 1 row of data.sequence = 4 tokens (but 2 of 3 left out, of which no "
      "token is to be predicted), and data.validation_fraction (0.01) holds out 1: give more data, "
      "data.validation, or a shorter data.sequence");
}

}  // namespace
}  // namespace ztrain::data::warnings_test
