// The range of every key, by walking over the table; and decks that no parser should see.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/dtype.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_ranges_test {
namespace {

bool is_whole(const Field& field) {
  return type_name(field) == "integer";
}
bool is_number(const Field& field) {
  return type_name(field) == "number" || type_name(field) == "two numbers" ||
         type_name(field) == "list of numbers";
}

/// What assigning the value to the field says.
std::string assigned(const Field& field, const std::string& value) {
  const bool list = type_name(field) == "two numbers" || type_name(field) == "list of numbers";
  return error_of([&] {
    Deck deck;
    assign(field, list ? fmt::format("[{0}, {0}]", value) : value, deck, "here");
  });
}

TEST(Ranges, OfIntegersHaveBothEnds) {
  for (const Field& field : fields()) {
    if (!is_whole(field)) continue;
    const Legal& l = field.legal;
    EXPECT_TRUE(std::abs(l.least) <= most_count && std::abs(l.most) <= most_count) << field.key;
    for (const double end : {l.least, l.most}) {
      Deck deck;
      assign(field, fmt::format("{:.0f}", end), deck, "here");
      EXPECT_EQ(render(field, deck), fmt::format("{:.0f}", end)) << field.key;
    }
    const std::string beyond = fmt::format("{}", static_cast<std::int64_t>(l.most) + 1);
    for (const std::string& value : {beyond, std::string("9223372036854775807"), std::string("1e300")})
      EXPECT_TRUE(assigned(field, value).ends_with(fmt::format("nearest legal: {}", l.most)))
          << assigned(field, value);
    EXPECT_NE(assigned(field, "-9223372036854775808"), "no error") << field.key;
    EXPECT_NE(assigned(field, "nan"), "no error") << field.key;
  }
}

/// Kernels see these as fp32: nothing may become infinite, or 0, on the way.
TEST(Ranges, OfNumbersAreThoseOfFp32) {
  for (const Field& field : fields()) {
    if (!is_number(field)) continue;
    EXPECT_TRUE(std::isfinite(field.legal.least) && field.legal.most <= most_fp32) << field.key;
    for (const char* value : {"nan", "inf", "-inf", "1e308", "1e39", "1e-300", "1e-40", "-1e300"})
      EXPECT_NE(assigned(field, value), "no error") << field.key << " = " << value;
  }
  EXPECT_EQ(assigned(*find_field("optimizer.eps"), "1e-300"),
            "here: optimizer.eps = 1e-300 is not legal: it is computed with in fp32, which holds 0 and "
            "magnitudes from "
            "1.2e-38 to 3.4e+38; expected a number above 0");
  EXPECT_EQ(assigned(*find_field("optimizer.betas"), "0.9999999999"),
            "here: optimizer.betas = [0.9999999999, 0.9999999999] is not legal: fp32, in which it is "
            "computed with, rounds "
            "it to 1; expected two numbers from 0 to below 1");
  EXPECT_EQ(assigned(*find_field("optimizer.lr"), "1e308"),
            "here: optimizer.lr = 1e+308 is not legal: it is computed with in fp32, which holds 0 and "
            "magnitudes from 1.2e-38 to 3.4e+38; expected a number above 0");
  EXPECT_NE(deck_error("[optimizer]\ngroups = [{match = \"a\", lr_scale = 1e-300}]\n"), "no error");
}

TEST(Ranges, OfKeysThatAttacksWerePassedBy) {
  EXPECT_EQ(deck_error("", {"--offload.nvme_block_size=9000"}),
            "command line: offload.nvme_block_size = 9000 is not legal: expected an integer, a multiple of "
            "4096 up to 1073741824; nearest legal: 8192");
  EXPECT_EQ(deck_error("", {"--offload.nvme_block_size=8192"}), "no error");
  EXPECT_EQ(deck_error("", {"--checkpoint.keep=4294967297"}),
            "command line: checkpoint.keep = 4294967297 is not legal: expected an integer from 0 to "
            "1000000000; nearest "
            "legal: 1000000000");
  EXPECT_EQ(deck_error("", {"--watchdog.timeout=1e10"}),
            "command line: watchdog.timeout = 10000000000 is not legal: expected a number from 0 to "
            "1000000000; nearest "
            "legal: 1000000000");
  EXPECT_EQ(deck_error("", {"--run.steps=0", "--run.tokens=9223372036854775807"}),
            "command line: run.tokens = 9223372036854775807 is not legal: expected an integer, 0 or more; "
            "nearest legal: "
            "9007199254740992");
  EXPECT_EQ(deck_error("", {"--run.steps=9e15", "--data.sequence=16777216"}),
            "command line: 9000000000000000 steps of batch.global x data.sequence = 134217728 tokens are "
            "more tokens than "
            "can be counted; nearest legal: 34359738368 steps");
  const Deck epochs = deck_of("", {"--run.steps=0", "--run.epochs=1e9"});
  EXPECT_EQ(error_of([&] { total_steps(epochs, 1'000'000'000); }),
            "command line: run.epochs = 1000000000 of 1000000000 sequences are more than can be counted; "
            "take fewer");
  EXPECT_NE(deck_error("", {"--sharding.reshard_after_forward=4294967298"}), "no error");
  EXPECT_EQ(
      deck_error("", {"--model.rms_norm_eps=4294967296"}),
      "command line: model.rms_norm_eps = 4294967296 is not legal: expected a number above 0, at most 1; "
      "nearest legal: 1");
  EXPECT_EQ(deck_error("", {"--model.hidden_size=16777216"}),
            "command line: model.head_dim = 2097152 is not legal: expected an integer from 0 to 65536; "
            "nearest legal: 65536")
      << "derived, and in the resolved deck";
  for (const char* key : {"checkpoint.folder", "run.output"}) {
    const std::string long_name = deck_error("", {fmt::format("--{}={}", key, std::string(5000, 'n'))});
    EXPECT_TRUE(long_name.find(key) != std::string::npos && long_name.ends_with("File name too long"))
        << long_name;
    EXPECT_LT(long_name.size(), 300u);
  }
}

TEST(Toml, IsNotNestedWithoutEnd) {
  const std::string refusal = "input.toml:7: not valid TOML: more than ";
  std::string dotted = "a";
  for (int i = 0; i < 50000; ++i) dotted += ".a";
  EXPECT_EQ(deck_error(dotted + " = 1\n"), refusal + "64 parts of a key");
  EXPECT_EQ(deck_error("[" + dotted + "]\n"), refusal + "64 parts of a key");
  EXPECT_EQ(deck_error("\"a\" . " + dotted + " = 1\n"), refusal + "64 parts of a key");
  EXPECT_EQ(deck_error("x = " + std::string(50000, '[') + "\n"), refusal + "32 brackets within each other");
  std::string inlined;
  for (int i = 0; i < 1000; ++i) inlined += "{a.a.a = ";
  EXPECT_EQ(deck_error("x = " + inlined + "\n"), refusal + "32 brackets within each other");
  EXPECT_NE(deck_error("", {"--run.steps=" + std::string(50000, '[')}), "no error");
  EXPECT_NE(deck_error("", {"--" + dotted + "=1"}), "no error");
  // Within strings and comments dots and brackets are text.
  const std::string path = "/" + std::string(100, '.') + std::string(100, '[');
  for (const std::string& quoted : {"\"" + path + "\\\"" + path + "\"", "'" + path + "'",
                                    "\"\"\"" + path + "\"\"\"\"", "'''\n" + path + "''''", "\"\" # " + path})
    EXPECT_EQ(deck_error("[checkpoint]\nfolder = " + quoted + "\n"), "no error") << quoted;
  EXPECT_EQ(deck_error("[optimizer]\nlr = 0.001 # 1.\nbetas = [0.9, 0.95]\n"), "no error");
}

TEST(Toml, OfUsersIsNotLargeWithoutEnd) {
  const std::string path = testing::TempDir() + "ztrain-large-deck.toml";
  std::ofstream(path) << std::string((1 << 20) + 1, '#');
  EXPECT_EQ(error_of([&] { load_deck(path); }),
            "the deck: '" + path + "' has 1048577 bytes, and no such file has more than 1048576");
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([] { load_deck("/dev/zero"); }),
            "the deck: cannot read '/dev/zero': it is a device, and a regular file is needed");
}

TEST(Texts, ArePlain) {
  const std::string refusal =
      " is not legal: expected UTF-8 text without control characters, which the deck's copies and "
      "checkpoints can hold; "
      "rename the file or folder";
  EXPECT_EQ(deck_error("", {"--run.output=runs/\xff"}),
            "command line: run.output = \"runs/\\xff\"" + refusal);
  EXPECT_EQ(deck_error("[checkpoint]\nfolder = \"a\\u001b[31m\"\n"),
            "input.toml:8: checkpoint.folder = \"a\\x1b[31m\"" + refusal);
  EXPECT_EQ(deck_error("", {"--data.train=[\"J\xfcrgen/*.bin\"]"}).find("\xfc"), std::string::npos);
  EXPECT_NE(deck_error("", {"--data.train=J\xfcrgen"}), "no error");
  EXPECT_NE(deck_error("", {"--optimizer.no_decay=\xff*"}), "no error");
  setenv("ZTRAIN_TEST_BYTES", "\xfe", 1);
  EXPECT_EQ(deck_error("output = \"${ZTRAIN_TEST_BYTES}/a\"\n"),
            "input.toml:7: run.output = \"\\xfe/a\"" + refusal);
  EXPECT_EQ(error_of([] {
              parse_deck(base, "J\xfcrgen.toml");
            }).find("cannot read the deck 'J\\xfcrgen.toml': its name"),
            0u);
  EXPECT_EQ(deck_error("output = \"J\xc3\xbcrgen\"\n"), "no error");
}

/// The folder that relative paths are below is part of them.
TEST(Texts, OfAFolderThatIsNotPlainAreRefused) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("ztrain_{}_\xff", getpid());
  const auto here = fs::current_path();
  fs::create_directory(folder);
  fs::current_path(folder);
  const std::string told = deck_error("");
  fs::remove(folder);
  const std::string gone = deck_error("");
  fs::current_path(here);
  EXPECT_EQ(gone, "the folder in which ztrain was started is not there any more: start it in another one");
  EXPECT_EQ(told.find("input.toml:2: data.train = \"/"), 0u) << told;
  EXPECT_NE(told.find("\\xff/*.bin\" is not legal"), std::string::npos) << told;
}

TEST(Ranges, MinusZeroIsZero) {
  EXPECT_FALSE(std::signbit(deck_of("[schedule]\nmin_lr_ratio = -0.0\n").schedule.min_lr_ratio));
  EXPECT_FALSE(std::signbit(deck_of("", {"--schedule.min_lr_ratio=-0e1"}).schedule.min_lr_ratio));
}

}  // namespace
}  // namespace ztrain::config::config_ranges_test
