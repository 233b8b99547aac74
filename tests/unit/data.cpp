// Token files in every layout, their errors and their identity.
#include "tests/unit/data_files.hpp"

namespace ztrain::data::data_test {
namespace {

// ---- layouts

TEST_F(Data, RawIdsOfBothWidths) {
  const Ids ids = count_up(1000, 1200);
  const auto narrow = open_tokens({write_ids<std::uint16_t>("a.bin", ids)}, "auto", "data.train");
  EXPECT_EQ(read_all(*narrow), ids);
  EXPECT_EQ(narrow->vocab_bound(), 65536);
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
  source->read(0, 1000, read.data());
  EXPECT_EQ(read, count_up(0, 1000));
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
  EXPECT_EQ(source->vocab_bound(), 257);
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

TEST_F(Data, MissingAndEmptyFilesNameTheKey) {
  EXPECT_EQ(open_error(at("no.bin")), "data.train: '" + at("no.bin") + "' does not exist or is not a file");
  EXPECT_EQ(open_error(at("*.bin")), "data.train: '" + at("*.bin") + "' matches no file");
  EXPECT_EQ(
      open_error(at("**/a.bin")),
      "data.train: '" + at("**/a.bin") + "': '**' is not supported; write one '*' for each level of folders");
  EXPECT_EQ(open_error(write("a.bin", "")), "data.train: '" + at("a.bin") + "' holds no tokens");
  EXPECT_EQ(open_error(write("a.txt", "")), "data.train: all files are empty ('" + at("a.txt") + "')");
  write_ids<std::uint16_t>("a.bin", count_up(0, 9));
  EXPECT_EQ(open_error(at("a.*")), "data.train: '" + at("a.bin") + "' looks like a token file and '" +
                                       at("a.txt") +
                                       "' like a text file; do not mix them, or give data.format");
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
  const auto hdf5 = [&](const Ids& values) {
    return open_tokens({write_hdf5("a.h5", "tokens", values)}, "auto", "data.train")->identity();
  };
  EXPECT_EQ(hdf5(count_up(0, 99)), hdf5(count_up(0, 99)));
  EXPECT_NE(hdf5(count_up(0, 99)), hdf5(count_up(1, 100)));
}

}  // namespace
}  // namespace ztrain::data::data_test
