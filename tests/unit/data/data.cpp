// Token files in every layout, their errors and their identity.
#include <sys/stat.h>

#include "data/datasets.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::data_test {
namespace {

// ---- layouts

TEST_F(Data, RawIdsOfBothWidths) {
  const Ids ids = count_up(1000, 1200);
  const auto narrow = open_tokens({write_ids<std::uint16_t>("a.bin", ids)}, "auto", "data.train");
  EXPECT_EQ(read_all(*narrow), ids);
  EXPECT_EQ(narrow->known_vocab(), 0);
  Ids large = ids;
  large[7] = 128000;
  const auto wide = open_tokens({write_ids<std::uint32_t>("b.bin", large)}, "auto", "data.train");
  EXPECT_EQ(read_all(*wide), large);
  EXPECT_EQ(read_all(*open_tokens({at("b.bin")}, "bin-uint32", "data.train")), large);
  EXPECT_EQ(open_tokens({at("b.bin")}, "bin-uint16", "data.train")->size(), 400);
}

TEST_F(Data, NamesOfFilesAreText) {
  write_ids<std::uint16_t>("a\xff.bin", count_up(0, 50));
  EXPECT_EQ(open_error(at("*.bin")),
            "data.train: '" + at("a\\xff.bin") +
                "' is not a name in UTF-8 without control characters, which checkpoints "
                "could hold: rename the file");
}

TEST_F(Data, IdsOfTwiceTheWidthAreRefused) {
  const Ids ids = count_up(1, 50);
  const std::string wide = write_ids<std::int64_t>("a.bin", ids);
  for (const char* format : {"auto", "bin-uint32"})
    EXPECT_EQ(
        open_error(wide, format),
        "data.train: '" + wide +
            "' is read as ids of 32 bits, of which every second is 0, as in a file of 64 bits: write it as "
            "uint16 or uint32 (NumPy: ids.astype(\"uint32\").tofile(...))");
  EXPECT_NE(open_error(write_ids<std::uint32_t>("b.bin", ids), "bin-uint16")
                .find("give data.format = \"bin-uint32\""),
            std::string::npos);
  EXPECT_EQ(read_all(*open_tokens({write_ids<std::uint32_t>("c.bin", Ids(50))}, "bin-uint32", "data.train")),
            Ids(50))
      << "zeros alone";
}

/// Ids of 32 bits are ids of 16 bits with small ones between; the vocabulary says which they can be.
TEST_F(Data, TheVocabularyTellsTheWidthOfRawIds) {
  const auto tokens_of = [&](const std::string& path, std::int64_t vocab,
                             const std::string& format = "auto") {
    return open_tokens({path}, format, "data.train", {vocab, ""})->size();
  };
  const auto error = [&](const std::string& path, std::int64_t vocab, const std::string& format = "auto") {
    return error_of([&] { tokens_of(path, vocab, format); });
  };
  Ids large = count_up(0, 200), small(200), spread(200), cut;
  for (std::size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<std::int32_t>(299'999 - 1400 * i);
    small[i] = i % 2 == 0 ? static_cast<std::int32_t>(i) : 1;
    spread[i] = static_cast<std::int32_t>(i * 7919 % 50'257);
  }
  const std::string wide = write_ids<std::uint32_t>("wide.bin", large),
                    narrow = write_ids<std::uint16_t>("narrow.bin", small),
                    plain = write_ids<std::uint16_t>("plain.bin", spread);
  EXPECT_EQ(read_all(*open_tokens({wide}, "auto", "data.train", {300'000, ""})), large);
  EXPECT_EQ(tokens_of(narrow, 257), 200);
  EXPECT_EQ(tokens_of(plain, 50'257), 200);
  small[7] = 65'541;
  EXPECT_EQ(tokens_of(write_ids<std::uint32_t>("far.bin", small), 257), 200) << "one id is too large";
  EXPECT_EQ(tokens_of(plain, 128'256), 200) << "ids of 32 bits would be far beyond any vocabulary";
  EXPECT_EQ(tokens_of(narrow, 128'256, "bin-uint32"), 100);
  const std::string start = "data.train: '" + wide + "' is read as ids of 16 bits, of which every second is ";
  EXPECT_EQ(error(wide, 300'000, "bin-uint16"),
            start + "at most 4, as in a file of 32 bits: give data.format = \"bin-uint32\"");
  EXPECT_EQ(
      error(plain, 50'257, "bin-uint32"),
      "data.train: '" + plain +
          "' is read as ids of 32 bits, of which some are not below model.vocab_size (50257), and as ids of "
          "16 bits all are: give data.format = \"bin-uint16\"");
  std::filesystem::resize_file(wide, 4 * 200 - 2);
  EXPECT_NE(error(wide, 300'000).find("is truncated: its 798 bytes are not a multiple of 4"),
            std::string::npos);
}

TEST_F(Data, NarrowIntegersAreTold) {
  const auto narrow = [&](const std::string& path, const std::string& format = "auto") {
    return open_tokens({path}, format, "data.train", {128'256, ""})->narrow_ids();
  };
  const std::string raw = write_ids<std::uint16_t>("a.bin", count_up(1000, 1200)),
                    wide = write_ids<std::uint32_t>("b.bin", count_up(1000, 1200)),
                    hdf5 = write_hdf5("a.h5", "tokens", count_up(0, 50));
  EXPECT_EQ(narrow(raw).limit, 65536);
  EXPECT_EQ(narrow(raw).file, raw);
  EXPECT_EQ(narrow(wide).limit, 0);
  EXPECT_EQ(narrow(hdf5).limit, 65536);
  for (const auto& [type, limit] : {std::pair(H5T_NATIVE_INT16, 32768), std::pair(H5T_NATIVE_UINT8, 256),
                                    std::pair(H5T_NATIVE_INT32, 0)}) {
    H5Fclose(H5Fcreate(at("b.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    add_dataset("b.h5", "tokens", type, std::vector<std::int32_t>(50));
    EXPECT_EQ(narrow(at("b.h5")).limit, limit);
  }
  const auto warnings = [&](const char* vocab) {
    return open_datasets(deck(hdf5, {std::string("--model.vocab_size=") + vocab})).warnings;
  };
  ASSERT_EQ(warnings("65537").size(), 1u);
  EXPECT_EQ(warnings("65537")[0].find("warning: data.train: '" + hdf5 + "' holds ids below 65536 alone"), 0u);
  EXPECT_TRUE(warnings("65536").empty());
}

TEST_F(Data, HeadersOfLlmC) {
  const Ids ids = count_up(0, 50);
  const auto gpt2 =
      open_tokens({write_ids<std::uint16_t>("a.bin", ids, {20240520, 1, 50})}, "auto", "data.train");
  EXPECT_EQ(read_all(*gpt2), ids);
  EXPECT_EQ(gpt2->known_vocab(), 50257);
  const auto llama =
      open_tokens({write_ids<std::uint32_t>("b.bin", ids, {20240801, 7, 50})}, "auto", "data.train");
  EXPECT_EQ(read_all(*llama), ids);
  EXPECT_EQ(llama->known_vocab(), 128256);
  EXPECT_EQ(read_all(*open_tokens({at("a.bin")}, "bin-uint16", "data.train")), ids);
  EXPECT_EQ(open_error(at("a.bin"), "bin-uint32"),
            "data.train: data.format = \"bin-uint32\", but the header of '" + at("a.bin") + "' says uint16");
  EXPECT_EQ(open_error(write_ids<std::uint16_t>("c.bin", ids, {20240520, 2, 50})),
            "data.train: '" + at("c.bin") +
                "' is a token file of magic 20240520 and version 2; version 1 is known");
}

TEST_F(Data, AFileThatBecomesShorterIsAnErrorThatNamesIt) {
  const auto source =
      open_tokens({write_ids<std::uint16_t>("a.bin", count_up(0, 100000))}, "auto", "data.train");
  Ids read(1000);
  source->read(99000, 1000, read.data());
  std::filesystem::resize_file(at("a.bin"), 2 * 99500);
  EXPECT_EQ(error_of([&] { source->read(99000, 1000, read.data()); }),
            "'" + at("a.bin") +
                "' was changed while it was in use: it had 200000 bytes and ends at byte 199000 now");
}

/// Written over in place, at the same size: the same ids would mean something else.
TEST_F(Data, AFileThatSomebodyWritesToIsAnErrorThatNamesIt) {
  const std::string plain = write_ids<std::uint16_t>("a.bin", count_up(0, 1000));
  const std::string hdf5 = write_hdf5("a.h5", "tokens", count_up(0, 1000));
  for (const std::string& path : {plain, hdf5}) {
    const auto source = open_tokens({path}, "auto", "data.train");
    Ids read(10);
    source->read(0, 10, read.data());
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    EXPECT_NE(error_of([&] { source->read(0, 10, read.data()); }).find("somebody has written to it since"),
              std::string::npos);
  }
}

TEST_F(Data, FilesJoinInTheOrderOfTheirPaths) {
  write_ids<std::uint16_t>("2.bin", count_up(10, 30));
  write_ids<std::uint16_t>("1.bin", count_up(0, 10));
  const auto source = open_tokens({at("2.bin"), at("*.bin")}, "auto", "data.train");
  EXPECT_EQ(read_all(*source), count_up(0, 30));
  Ids middle(5);
  source->read(8, 5, middle.data());
  EXPECT_EQ(middle, count_up(8, 13));
  EXPECT_EQ(source->locate(12).file, at("2.bin"));
  EXPECT_EQ(source->locate(12).position, 2);
  EXPECT_NE(error_of([&] { source->read(26, 5, middle.data()); }).find("tokens [26, 31) are outside the 30"),
            std::string::npos);
}

TEST_F(Data, TextIsBytesWithASeparatorBetweenFiles) {
  write("a.txt", "hi");
  write("b.txt", "");
  write("c.txt", "\xff!");
  const auto source = open_tokens({at("*.txt")}, "auto", "data.train");
  EXPECT_EQ(read_all(*source), (Ids{'h', 'i', 256, 255, '!'}));
  EXPECT_EQ(source->known_vocab(), 257);
  for (std::int64_t begin = 0; begin < 5; ++begin) {
    for (std::int64_t count = 0; begin + count <= 5; ++count) {
      Ids part(static_cast<std::size_t>(count));
      source->read(begin, count, part.data());
      const Ids all = read_all(*source);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + begin)) << begin << " " << count;
    }
  }
  EXPECT_EQ(source->locate(3).file, at("c.txt"));
}

TEST_F(Data, Hdf5Datasets) {
  write_hdf5("a.h5", "tokens", count_up(0, 3000));
  write_hdf5("b.h5", "tokens", count_up(3000, 3010));
  const auto source = open_tokens({at("*.h5")}, "auto", "data.train");
  EXPECT_EQ(read_all(*source), count_up(0, 3010));
  Ids seam(4);
  source->read(2998, 4, seam.data());
  EXPECT_EQ(seam, count_up(2998, 3002));
  EXPECT_EQ(source->locate(3005).position, 5);
  EXPECT_EQ(open_error(write_hdf5("c.h5", "ids", count_up(0, 9))),
            "data.train: '" + at("c.h5") + "' has no dataset \"tokens\"");
  EXPECT_EQ(open_error(write_hdf5("d.h5", "tokens", count_up(0, 9), 2)),
            "data.train: the dataset \"tokens\" of '" + at("d.h5") +
                "' is not a one-dimensional array of integers");
  EXPECT_EQ(open_error(write_hdf5("e.h5", "tokens", {})),
            "data.train: the dataset \"tokens\" of '" + at("e.h5") + "' is empty");
  EXPECT_EQ(open_error(write("f.h5", "text")),
            "data.train: '" + at("f.h5") + "' cannot be opened as an HDF5 file");
  for (const char* format : {"bin-uint16", "bin-uint32"})
    EXPECT_EQ(error_of([&] { open_tokens({at("a.h5")}, format, "data.train"); }),
              "data.train: '" + at("a.h5") +
                  "' is HDF5, and would be read as raw ids: give it a name that "
                  "ends in .h5, and leave data.format out");
}

// ---- errors

TEST_F(Data, TruncatedFilesShowBothNumbers) {
  write_ids<std::uint16_t>("a.bin", count_up(0, 40), {20240520, 1, 50});
  EXPECT_EQ(open_error(at("a.bin")),
            "data.train: '" + at("a.bin") +
                "' is truncated: its header promises 50 tokens (1124 bytes), but it has 1104 bytes");
  write_ids<std::uint16_t>("b.bin", count_up(0, 60), {20240520, 1, 50});
  EXPECT_EQ(open_error(at("b.bin")),
            "data.train: '" + at("b.bin") +
                "' is damaged: its header promises 50 tokens (1124 bytes), but it has 1144 bytes");
  EXPECT_EQ(open_error(write("c.bin", "12345")),
            "data.train: '" + at("c.bin") +
                "' is truncated: its 5 bytes are not a multiple of 2, the bytes of one token");
  EXPECT_EQ(open_error(write("d.bin", "123456"), "bin-uint32"),
            "data.train: '" + at("d.bin") +
                "' is truncated: its 6 bytes are not a multiple of 4, the bytes of one token");
  const std::int32_t magic = 20240520;
  EXPECT_EQ(open_error(write("e.bin", std::string(reinterpret_cast<const char*>(&magic), 4) + "1234")),
            "data.train: '" + at("e.bin") +
                "' is truncated: it starts like a token file with a header of 1024 bytes, but has 8");
}

TEST_F(Data, WhatIsNoTextIsRefusedWithTheLineThatMakesTokensOfIt) {
  const auto error = [&](const std::string& name, const std::string& content, const Reader& reader,
                         const std::string& format = "auto") {
    const std::string path = write(name, content);
    return error_of([&] { open_tokens({path}, format, "data.train", reader); });
  };
  const Reader bytes{257, ""}, model{339, "/models/a b"};
  EXPECT_EQ(error("chats.jsonl", "{}", model),
            "data.train: '" + at("chats.jsonl") +
                "' holds records (JSON), and is no text: make tokens of it with `tools/prepare_data.py " +
                at("chats.jsonl") + " --tokenizer '/models/a b' --output " + at("chats.h5") +
                "`, and give that file");
  EXPECT_NE(error("a.JSON.gz", "x", bytes).find(" --tokenizer bytes --output " + at("a.h5")),
            std::string::npos);
  for (const char* name : {"a.parquet", "a.jsonl.zst", "a.parquet.xz"})
    EXPECT_NE(error(name, "PAR1", bytes).find(at(name) + " --tokenizer bytes --output " + at("a.h5")),
              std::string::npos)
        << error(name, "PAR1", bytes);
  EXPECT_NE(error("model.safetensors", "x", bytes).find("holds weights"), std::string::npos);
  EXPECT_NE(error("program", std::string("ab\0c", 4), bytes).find("is no text: it has zero bytes"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { open_tokens({at("program")}, "text", "data.train", bytes); }).find("it has zero bytes"),
      std::string::npos);
  EXPECT_EQ(error_of([&] { open_tokens({at("chats.jsonl")}, "text", "data.train", bytes); }), "no error");
  EXPECT_EQ(error("a.txt", "text", bytes), "no error");
  EXPECT_EQ(error("a.txt", "text", {}), "no error");
  const std::string text =
      "data.train: '" + at("a.txt") +
      "' is text, which is read as bytes, and the model has a vocabulary of 339 instead of "
      "257: make tokens of it with `tools/prepare_data.py ";
  EXPECT_EQ(error("a.txt", "text", model).rfind(text, 0), 0u);
  EXPECT_EQ(error("a.txt", "text", model, "text").rfind(text, 0), 0u);
  EXPECT_EQ(error("b.json", "{}", bytes, "text"), "no error");
}

/// Some call raw ids so.
TEST_F(Data, FilesOfNumPyAreKnownByTheirFirstBytes) {
  const Reader gpt2{50'257, ""};
  const auto error = [&](const std::string& path, const std::string& format) {
    return error_of([&] { open_tokens({path}, format, "data.train", gpt2); });
  };
  const std::string raw = write_ids<std::uint16_t>("raw.npy", count_up(300, 400)),
                    wide = write_ids<std::uint32_t>("wide.npy", count_up(300, 400)),
                    array = write("array.npy", "\x93NUMPY" + std::string(200, 'x'));
  const std::string by_name =
      "' is an array of NumPy by its name and not by its first bytes: say what it is with ";
  EXPECT_EQ(error(raw, "auto"),
            "data.train: '" + raw + by_name + "data.format, such as \"bin-uint16\" for raw ids");
  EXPECT_EQ(error(wide, "auto"),
            "data.train: '" + wide + by_name + "data.format, such as \"bin-uint32\" for raw ids");
  EXPECT_EQ(error(raw, "bin-uint16"), "no error");
  EXPECT_NE(
      error(array, "auto").find("is an array of NumPy, and is no text: write its ids alone with `python3 "),
      std::string::npos);
  EXPECT_NE(error(array, "bin-uint16").find("' is an array of NumPy, and would be read as raw ids: "),
            std::string::npos);
}

TEST_F(Data, PackedFilesAreRefusedWithTheCommandThatUnpacksThem) {
  const char* const commands[][2] = {{"gz", "gzip -dk"},   {"zst", "zstd -d"}, {"xz", "xz -dk"},
                                     {"bz2", "bzip2 -dk"}, {"zip", "unzip"},   {"tar.gz", "gzip -dk"}};
  for (const auto& [ending, command] : commands) {
    const std::string path = write(std::string("a.TXT.") + ending, "no zero byte");
    for (const char* format : {"auto", "text", "bin-uint16", "hdf5"})
      EXPECT_TRUE(open_error(path, format)
                      .ends_with(": unpack it with `" + std::string(command) + " " + path +
                                 "`, and give what that makes"))
          << open_error(path, format);
  }
  EXPECT_EQ(open_error(at("a.TXT.gz")).find("data.train: '" + at("a.TXT.gz") + "' is packed: "), 0u);
}

TEST_F(Data, TextOfOtherEncodingsIsNamed) {
  EXPECT_TRUE(open_error(write("a.txt", std::string("\xff\xfe"
                                                    "a\0b\0",
                                                    6)))
                  .starts_with("data.train: '" + at("a.txt") + "': is text in UTF-16, and must be UTF-8"));
  EXPECT_EQ(open_error(write("b.txt", "\xef\xbb\xbftext")), "no error");
}

TEST_F(Data, WhatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(at("fifo.bin").c_str(), 0600), 0);
  EXPECT_EQ(open_error(at("fifo.bin")),
            "data.train: cannot read '" + at("fifo.bin") + "': it is a FIFO, and a regular file is needed");
  EXPECT_EQ(open_error(at("*.bin")), "data.train: '" + at("*.bin") + "' matches no file");
  EXPECT_NE(open_error("/dev/zero").find("it is a device"), std::string::npos);
  EXPECT_NE(open_error(at(".")).find("it is a folder"), std::string::npos);
}

TEST_F(Data, FoldersOfOthersAreNotEmpty) {
  std::filesystem::create_directory(at("closed"));
  write("closed/a.txt", "text");
  std::filesystem::permissions(at("closed"), std::filesystem::perms::none);
  const uid_t user = ::geteuid();
  ASSERT_EQ(::seteuid(user == 0 ? 65534 : user), 0);
  const std::string one = open_error(at("closed/a.txt")), some = open_error(at("closed/*.txt")),
                    below = open_error(at("*/*.txt")), none = open_error(at("nowhere/*.txt"));
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_EQ(one.rfind("data.train: cannot read '" + at("closed/a.txt") + "': Permission denied; it, and", 0),
            0u)
      << one;
  EXPECT_EQ(some.rfind("data.train: cannot read '" + at("closed/*.txt") + "': Permission denied; it, and", 0),
            0u)
      << some;
  EXPECT_EQ(below,
            "data.train: '" + at("*/*.txt") + "' cannot be searched: a folder may not be read by this user");
  EXPECT_EQ(none, "data.train: '" + at("nowhere/*.txt") + "' matches no file");
}

TEST_F(Data, MissingAndEmptyFilesNameTheKey) {
  EXPECT_EQ(open_error(at("no.bin")), "data.train: '" + at("no.bin") + "' does not exist");
  EXPECT_EQ(open_error(at("*.bin")), "data.train: '" + at("*.bin") + "' matches no file");
  EXPECT_EQ(
      open_error(at("**/a.bin")),
      "data.train: '" + at("**/a.bin") + "': '**' is not supported; write one '*' for each level of folders");
  EXPECT_EQ(open_error(write("a.bin", "")), "data.train: '" + at("a.bin") + "' holds no tokens");
  EXPECT_EQ(open_error(write("a.txt", "")), "data.train: all files are empty ('" + at("a.txt") + "')");
  write_ids<std::uint16_t>("a.bin", count_up(0, 9));
  EXPECT_EQ(open_error(at("a.*")),
            "data.train: '" + at("a.bin") + "' looks like a token file and '" + at("a.txt") +
                "' like a text file; give each an entry of its own in data.train, and data.weights");
}

// ---- identity

TEST_F(Data, IdentityIsOfContentNotOfPlace) {
  const Ids ids = count_up(0, 60000);
  const auto identity = [&](const std::string& name, const Ids& values) {
    return open_tokens({write_ids<std::uint16_t>(name, values)}, "bin-uint16", "data.train")->identity();
  };
  std::filesystem::create_directories(folder_ / "moved");
  EXPECT_EQ(identity("a.bin", ids), identity("moved/a.bin", ids));
  EXPECT_NE(identity("a.bin", ids), identity("b.bin", ids));
  EXPECT_NE(identity("a.bin", ids), identity("moved/a.bin", count_up(0, 59999)));
  EXPECT_NE(identity("a.bin", ids), identity("moved/a.bin", count_up(1, 60001)));
  for (const std::size_t sampled : {31000, 59900}) {
    Ids changed = ids;
    changed[sampled] = 7;
    EXPECT_NE(identity("a.bin", ids), identity("moved/a.bin", changed)) << sampled;
  }
  const auto end_of = [&](const std::vector<Ids>& files) {
    std::vector<std::string> paths;
    for (const Ids& values : files)
      paths.push_back(write_ids<std::uint16_t>(std::to_string(paths.size()) + ".bin", values));
    return open_tokens(paths, "bin-uint16", "data.train")->end_identity();
  };
  Ids last = ids;
  last.back() = 7;
  EXPECT_EQ(end_of({ids, ids}), end_of({ids, ids}));
  EXPECT_NE(end_of({ids, ids}), end_of({ids, last}));
  EXPECT_NE(end_of({ids, ids}), end_of({last, ids}));
  const auto hdf5 = [&](const Ids& values) {
    return open_tokens({write_hdf5("a.h5", "tokens", values)}, "auto", "data.train")->identity();
  };
  EXPECT_EQ(hdf5(count_up(0, 99)), hdf5(count_up(0, 99)));
  EXPECT_NE(hdf5(count_up(0, 99)), hdf5(count_up(1, 100)));
}

}  // namespace
}  // namespace ztrain::data::data_test
