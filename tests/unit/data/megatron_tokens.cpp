// Data sets of Megatron-LM: what their index says, and every way in which the two files can be wrong.
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::megatron_tokens_test {
namespace {

/// The parts of an index, so that a test can make one of them wrong.
struct Set {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths{3, 2, 0, 4};
  std::vector<std::int64_t> pointers{0, 6, 10, 10}, documents{0, 2, 3, 4};  ///< sequence 2, document 1: empty
  std::string ids = std::string(18, '\0');
};

class Megatron : public Data {
 protected:
  template <class T>
  static std::string bytes_of(const std::vector<T>& items) {
    return {reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T)};
  }
  /// Ids counting up from 1 in a type of `code`.
  template <class T>
  static Set set_of(std::uint8_t code) {
    Set set;
    std::vector<T> ids(9);
    std::iota(ids.begin(), ids.end(), T{1});
    set.code = code, set.ids = bytes_of(ids);
    for (auto& pointer : set.pointers) pointer = pointer / 2 * std::int64_t{sizeof(T)};
    return set;
  }
  std::string write_set(const std::string& name, const Set& set, const std::string& behind = "",
                        std::size_t cut = 0) const {
    const std::vector<std::uint64_t> version{set.version};
    const std::vector<std::int64_t> counts{std::ssize(set.lengths), std::ssize(set.documents)};
    std::string index = set.magic + bytes_of(version) + static_cast<char>(set.code) + bytes_of(counts) +
                        bytes_of(set.lengths) + bytes_of(set.pointers) + bytes_of(set.documents) + behind;
    index.resize(index.size() - cut);
    write(name + ".idx", index);
    return write(name + ".bin", set.ids);
  }
  /// Returns the error of opening the set and reading its documents.
  std::string error(const Set& set, const std::string& behind = "", std::size_t cut = 0) const {
    const std::string path = write_set("bad", set, behind, cut);
    return error_of([&] { open_tokens({path}, "auto", "data.train")->document_offsets(); });
  }
  static void expect(const std::string& error, const std::string& part) {
    EXPECT_EQ(error.find("data.train: '"), 0u) << error;
    EXPECT_NE(error.find(part), error.npos) << error;
  }
};

TEST_F(Megatron, EveryTypeOfIntegersIsRead) {
  const auto check = [&](const Set& set, std::int64_t limit) {
    const auto source = open_tokens({write_set("ids", set)}, "auto", "data.train");
    EXPECT_EQ(read_all(*source), count_up(1, 10)) << int{set.code};
    EXPECT_EQ(source->narrow_ids().limit, limit) << int{set.code};
    EXPECT_EQ(source->document_offsets(), (std::vector<std::int64_t>{0, 5, 9})) << "empty ones are left out";
    EXPECT_TRUE(source->has_documents());
    EXPECT_EQ(source->known_vocab(), 0);
  };
  check(set_of<std::uint8_t>(1), 256);
  check(set_of<std::int8_t>(2), 128);
  check(set_of<std::int16_t>(3), 32768);
  check(set_of<std::int32_t>(4), 0);
  check(set_of<std::int64_t>(5), 0);
  check(set_of<std::uint16_t>(8), 65536);
  check(set_of<std::uint32_t>(9), 0);
  check(set_of<std::uint64_t>(10), 0);
}

/// An id that has no place in 32 bits must not become one that has.
TEST_F(Megatron, IdsKeepTheirSignAndTheirSize) {
  Set wide = set_of<std::int64_t>(5);
  wide.ids = bytes_of(
      std::vector<std::int64_t>{1, -2, std::int64_t{1} << 32, -(std::int64_t{1} << 40), 5, 6, 7, 8, 9});
  EXPECT_EQ(read_all(*open_tokens({write_set("wide", wide)}, "auto", "data.train")),
            (Ids{1, -2, 2147483647, -2147483647 - 1, 5, 6, 7, 8, 9}));
  wide.code = 10;
  EXPECT_EQ(read_all(*open_tokens({write_set("wide", wide)}, "auto", "data.train"))[1], 2147483647);
  Set narrow = set_of<std::int16_t>(3);
  narrow.ids.replace(0, 2, "\xff\xff");
  EXPECT_EQ(read_all(*open_tokens({write_set("narrow", narrow)}, "auto", "data.train"))[0], -1);
  narrow.code = 8;
  EXPECT_EQ(read_all(*open_tokens({write_set("narrow", narrow)}, "auto", "data.train"))[0], 65535);
}

TEST_F(Megatron, SetsFollowOneAnotherAndAreNamedInEveryWay) {
  write_set("a", set_of<std::uint16_t>(8));
  Set second = set_of<std::int32_t>(4);
  second.documents = {0, 4};
  write_set("b", second);
  for (const char* pattern : {"*", "*.bin", "*.idx"}) {
    const auto source = open_tokens({at(pattern)}, "auto", "data.train");
    EXPECT_EQ(source->document_offsets(), (std::vector<std::int64_t>{0, 5, 9, 18})) << pattern;
    EXPECT_EQ(source->size(), 18);
    EXPECT_EQ(source->locate(10).file, at("b.bin"));
    EXPECT_EQ(source->narrow_ids().file, at("a.bin"));
  }
  EXPECT_EQ(open_tokens({at("b")}, "megatron", "data.train")->size(), 9) << "by Megatron's own name";
  EXPECT_FALSE(open_tokens({at("a.bin")}, "bin-uint16", "data.train")->has_documents()) << "as the deck says";
}

TEST_F(Megatron, MoreSequencesThanABlock) {
  Set many;
  const std::int64_t count = (1 << 16) * 2 + 5;
  many.lengths.assign(static_cast<std::size_t>(count), 1);
  many.pointers.resize(static_cast<std::size_t>(count)),
      many.documents.resize(static_cast<std::size_t>(count) + 1);
  std::iota(many.documents.begin(), many.documents.end(), 0);
  for (std::size_t i = 0; i < many.pointers.size(); ++i) many.pointers[i] = 2 * static_cast<std::int64_t>(i);
  many.ids.assign(static_cast<std::size_t>(2 * count), '\1');
  EXPECT_EQ(open_tokens({write_set("many", many)}, "auto", "data.train")->document_offsets(), many.documents);
}

TEST_F(Megatron, BadFilesAreToldInOneSentence) {
  EXPECT_EQ(error(Set{}), "no error");
  const auto with = [&](const auto& change) {
    Set set;
    change(set);
    return error(set);
  };
  expect(with([](Set& s) { s.magic = std::string("TNTIDX\0\0\0", 9); }), "older format (TNTIDX)");
  expect(with([](Set& s) { s.magic[3] = 'x'; }),
         "is no index of Megatron (MMIDIDX), by its first bytes; if it");
  expect(with([](Set& s) { s.version = 2; }), "has version 2; version 1 is read");
  for (const int code : {0, 6, 7, 11})
    expect(with([&](Set& s) { s.code = static_cast<std::uint8_t>(code); }),
           fmt::format("have the type {}, which", code));
  expect(with([](Set& s) { s.documents = {0}; }), "holds 4 sequences in 0 documents");
  expect(with([](Set& s) { s.ids.clear(); }), "bad.bin' holds no tokens");
  expect(with([](Set& s) { s.ids.pop_back(); }),
         "has 17 bytes, and its last sequence is, by '" + at("bad.idx"));
  expect(with([](Set& s) { s.ids += "ab"; }), "has 20 bytes, and its last sequence");
  expect(with([](Set& s) {
           s.lengths = {3, 3, 0, 4};
         }),
         "sequence 2 is 0 tokens from byte 10 on, and those before it end at byte 12");
  expect(with([](Set& s) { s.lengths = {5, -2, 2, 4}; }), "sequence 1 is -2 tokens");
  expect(with([](Set& s) { s.lengths = {2147483647, 2, 0, 4}; }), "sequence 0 is 2147483647 tokens");
  expect(with([](Set& s) { s.pointers = {0, 8, 10, 10}; }), "sequence 1 is 2 tokens from byte 8 on");
  expect(with([](Set& s) { s.documents = {1, 2, 3, 4}; }), "document index [0] is 1");
  expect(with([](Set& s) { s.documents = {0, 3, 2, 4}; }), "document index [2] is 2");
  expect(with([](Set& s) {
           s.documents = {0, 3, 5, 4};
         }),
         "document index [2] is 5, and it must go from 0 to its 4");
  expect(with([](Set& s) { s.documents = {0, 2, 3, 3}; }), "document index ends at sequence 3 of 4");
  expect(error(Set{}, "", 1), "is truncated: its header promises 4 sequences and an index of 4 documents");
  expect(error(Set{}, "", 90), "is truncated: it has 24 bytes, and its header 34");
  expect(error(Set{}, std::string(4, '\0')), "data of several modes are not read");
  expect(error(Set{}, "x"), "is damaged: its header promises 114 bytes, but it has 115");
  write("alone.bin", "abcd");
  expect(open_error(at("alone.bin"), "megatron"), "needs its index '" + at("alone.idx"));
  expect(open_error(write("a.txt", "text"), "megatron"), "a.txt' is no .bin file");
}

/// Counts that would overflow, or take all memory.
TEST_F(Megatron, HugeCountsAreNotBelieved) {
  for (const std::int64_t count : {std::int64_t{1} << 40, std::int64_t{-1}, std::int64_t{1} << 62})
    for (const std::streamoff byte : {18, 26}) {
      write_set("huge", Set{});
      std::fstream file(at("huge.idx"), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(byte);
      file.write(reinterpret_cast<const char*>(&count), sizeof count);
      file.close();
      expect(open_error(at("huge.bin")), count < 0 ? "nothing to train on" : "is truncated");
    }
}

}  // namespace
}  // namespace ztrain::data::megatron_tokens_test
