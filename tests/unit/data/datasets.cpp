// What becomes of files as a whole: attributes, the order of validation, and what opening them costs.
#include "data/datasets.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <functional>

#include "data/rows/packing.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::datasets_test {
namespace {

/// Writes attributes of any number of items, as h5py does.
class Attributes : public Data {
 protected:
  Attributes() { write_hdf5("a.h5", "tokens", count_up(0, 12)); }

  void add_array(const char* name, hid_t type, hsize_t count, const void* values) const {
    const hid_t file = H5Fopen(at("a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    if (H5Aexists(file, name) > 0) H5Adelete(file, name);
    const hid_t id = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (count > 0) H5Awrite(id, type, values);
    H5Aclose(id), H5Sclose(space), H5Fclose(file);
  }
  Tokenizer opened() const { return open_tokens({at("a.h5")}, "auto", "data.train")->tokenizer(); }

  /// The end of the error that opening the file gives.
  std::string error(const std::string& name) const {
    const std::string text = open_error(at("a.h5"));
    const std::string start = "data.train: the attribute " + name + " of '" + at("a.h5") + "' ";
    return text.rfind(start, 0) == 0 ? text.substr(start.size()) : text;
  }
};

/// A string type of the library that is closed.
struct StringType {
  explicit StringType(std::size_t size) : id(H5Tcopy(H5T_C_S1)) { H5Tset_size(id, size); }
  StringType(const StringType&) = delete;
  StringType& operator=(const StringType&) = delete;
  ~StringType() { H5Tclose(id); }
  hid_t id;
};

TEST_F(Attributes, ArraysOfStringsAreRefused) {
  const StringType variable(H5T_VARIABLE), fixed(6);
  const char* texts[] = {"one", "two"};
  add_array("tokenizer", variable.id, 2, texts);
  EXPECT_EQ(error("tokenizer"), "must be one string, but is 2 of them");
  const std::string many(6 * 5000, 'x');
  add_array("tokenizer", fixed.id, 5000, many.data());
  EXPECT_EQ(error("tokenizer"), "must be one string, but is 5000 of them");
  add_array("tokenizer", fixed.id, 0, nullptr);
  EXPECT_EQ(error("tokenizer"), "must be one string, but is 0 of them");
}

TEST_F(Attributes, ArraysOfIntegersAreRefused) {
  const std::vector<std::int64_t> numbers(1000, 7);
  for (const char* name : {"ztrain_format", "vocab_size"}) {
    add_array(name, H5T_NATIVE_INT64, 1000, numbers.data());
    EXPECT_EQ(error(name), "must be one integer, but is 1000 of them");
    add_array(name, H5T_NATIVE_INT64, 1, std::vector<std::int64_t>{1}.data());
  }
}

TEST_F(Attributes, OtherTypesAreRefused) {
  const double number = 300;
  add_attribute("a.h5", "vocab_size", H5T_NATIVE_DOUBLE, &number);
  EXPECT_EQ(error("vocab_size"), "must be one integer, but is of another type");
  const std::vector<std::int64_t> one{1};
  add_array("vocab_size", H5T_NATIVE_INT64, 1, one.data());
  add_array("tokenizer_hash", H5T_NATIVE_INT64, 1, one.data());
  EXPECT_EQ(error("tokenizer_hash"), "must be one string, but is of another type");
}

TEST_F(Attributes, TextIsUtf8AndShort) {
  const std::string must = "must be UTF-8 text of at most 1000 bytes without control characters, but is ";
  for (const auto& [text, shown] : {std::pair<std::string, std::string>{"a\xe5"
                                                                        "b",
                                                                        "'a\\xe5"
                                                                        "b'"},
                                    {"a\x1b[2J", "'a\\x1b[2J'"},
                                    {std::string(1001, 'n'), "'" + std::string(100, 'n') + "...'"}}) {
    const StringType type(text.size());
    add_array("tokenizer_hash", type.id, 1, text.data());
    EXPECT_EQ(error("tokenizer_hash"), must + shown);
  }
}

TEST_F(Attributes, OneItemIsReadWhateverItsForm) {
  const StringType variable(H5T_VARIABLE), fixed(6);
  const std::int32_t vocabulary = 300;
  const char* text = "variable";
  add_array("vocab_size", H5T_NATIVE_INT32, 1, &vocabulary);
  add_array("tokenizer", variable.id, 1, &text);
  add_attribute("a.h5", "tokenizer_hash", fixed.id, "fix\0\0");
  EXPECT_EQ(opened().vocab_size, 300);
  EXPECT_EQ(opened().name, "variable");
  EXPECT_EQ(opened().hash, "fix");
  const char* none = nullptr;
  add_array("tokenizer", variable.id, 1, &none);
  EXPECT_EQ(opened().name, "");
}

// ---- validation

using Opened = Data;

/// The document of each row, where a row holds one and document d begins with token 4 d.
std::vector<std::int32_t> documents_of(const RowSet& set) {
  std::vector<std::int32_t> documents;
  Batch batch(4);
  for (std::int64_t r = 0; r < set.rows->rows(); ++r) {
    fill_in_order(*set.rows, r, 1, batch.view());
    documents.push_back(batch.tokens[0] / 4);
  }
  return documents;
}

TEST_F(Opened, ValidationMixesPackedRows) {
  // Packed from the longest to the shortest: the longer half are the documents of even index.
  std::vector<std::int64_t> lengths;
  for (int d = 0; d < 400; ++d) lengths.push_back(d % 2 == 0 ? 4 : 3);
  const std::string file = write_documents("v.h5", lengths);
  const auto open = [&](const std::string& seed, const std::string& packing = "auto") {
    return open_datasets(deck(file, {"--model.vocab_size=2000", "--data.validation=" + file,
                                     "--run.seed=" + seed, "--data.packing=" + packing}));
  };
  const Datasets sets = open("1");
  const auto lengths_of = [](const RowSet& set, std::int64_t count) {
    std::int64_t whole = 0;
    Batch batch(4);
    for (std::int64_t r = 0; r < count; ++r) {
      fill_in_order(*set.rows, r, 1, batch.view());
      whole += batch.weights[2] > 0;  // a document of 4 tokens has 3 targets
    }
    return whole;
  };
  ASSERT_EQ(sets.validation[0].rows->rows(), 400);
  EXPECT_EQ(lengths_of(sets.validation[0], 400), 200);
  EXPECT_NEAR(static_cast<double>(lengths_of(sets.validation[0], 100)), 50, 20);
  EXPECT_EQ(lengths_of(sets.train[0], 100), 100);  // the sampler mixes these
  EXPECT_EQ(documents_of(sets.validation[0]), documents_of(open("2").validation[0]));
  EXPECT_EQ(sets.validation[0].identity, open("2").validation[0].identity);
  EXPECT_NE(sets.validation[0].identity, sets.train[0].identity);
  auto sorted = documents_of(sets.validation[0]), train = documents_of(sets.train[0]);
  std::sort(sorted.begin(), sorted.end()), std::sort(train.begin(), train.end());
  EXPECT_EQ(sorted, train);
  const Datasets windows = open("1", "windows");
  const auto in_order = documents_of(windows.validation[0]);
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
}

/// The smaller part is counted, and what is left of all is the larger.
TEST_F(Opened, PartsOfAPackingHaveWhatTheirRowsHave) {
  std::vector<std::int64_t> lengths;
  for (int d = 0; d < 300; ++d) lengths.push_back(1 + d % 4);
  const std::string file = write_documents("parts.h5", lengths);
  for (const char* fraction : {"0.1", "0.7"}) {
    const Datasets sets = open_datasets(
        deck(file, {"--model.vocab_size=2000", std::string("--data.validation_fraction=") + fraction}));
    for (const RowSet* set : {&sets.train[0], &sets.validation[0]}) {
      std::int64_t trained = 0, tokens = 0;
      Batch batch(4);
      for (std::int64_t r = 0; r < set->rows->rows(); ++r) {
        fill_in_order(*set->rows, r, 1, batch.view());
        trained += std::count(batch.weights.begin(), batch.weights.end(), 1.0f);
        tokens += 4;
      }
      const RowCounts counts = set->rows->counts();
      EXPECT_EQ(counts.trained, trained) << fraction;
      EXPECT_EQ(counts.documents, counts.tokens - trained) << "the last token of each document has no target";
      EXPECT_LE(counts.tokens, tokens);
    }
  }
}

TEST_F(Opened, WindowsOfAMaskOfZerosAreRefused) {
  const std::string zeros = write_documents("z.h5", {30, 34}, std::vector<std::uint8_t>(64, 0));
  const std::string good = write_documents("g.h5", {30, 34});
  const auto error = [&](const std::string& train, const std::string& more) {
    return error_of([&] {
      open_datasets(deck(train, {"--model.vocab_size=300", "--data.packing=windows", more}));
    });
  };
  const std::string none = "': no token is to be predicted (loss_mask) in ",
                    end = ": '" + zeros + none + "its 15 windows";
  EXPECT_EQ(error(zeros, "--data.validation_fraction=0"), "data.train" + end);
  EXPECT_EQ(error(zeros, "--data.validation_fraction=0.2"), "data.train" + end);
  EXPECT_EQ(error(good, "--data.validation=" + zeros), "data.validation" + end);
  std::vector<std::uint8_t> mask(64, 1);
  std::fill(mask.begin() + 40, mask.end(), std::uint8_t{0});
  const std::string front = write_documents("front.h5", {64}, mask);
  const std::string held = "data.validation_fraction (0.25)",
                    advice = ": give data.validation, or another fraction";
  EXPECT_EQ(
      error(front, "--data.validation_fraction=0.25"),
      "data.train: '" + front + none + "the last 16 of 64 tokens, which " + held + " holds out" + advice);
  std::ranges::reverse(mask);
  std::fill(mask.begin(), mask.begin() + 50, std::uint8_t{0});
  const std::string back = write_documents("back.h5", {64}, mask);
  EXPECT_EQ(error(back, "--data.validation_fraction=0.25"), "data.train: '" + back + none +
                                                                "the first 48 of 64 tokens, which " + held +
                                                                " leaves to be trained on" + advice);
  EXPECT_EQ(error(back, "--data.validation_fraction=0"), "no error");
}

TEST_F(Opened, DocumentsOfOneTokenHaveNothingToPredict) {
  const auto error = [&](const std::string& file, const char* more) {
    return error_of([&] {
      open_datasets(deck(file, {"--model.vocab_size=300", "--data.validation_fraction=0", more}));
    });
  };
  for (const std::size_t masked : {0, 6}) {
    const std::vector<std::uint8_t> mask(masked, 1);
    const std::string file = write_documents("s.h5", std::vector<std::int64_t>(6, 1), mask);
    EXPECT_EQ(error(file, "--data.packing=documents"),
              "data.train: '" + file +
                  "': 6 of its 6 documents have one token, behind which nothing is to be predicted: write "
                  "longer documents, or set data.packing = \"windows\", which joins them");
    EXPECT_EQ(error(file, "--data.packing=windows"), "no error");
  }
  EXPECT_NE(
      error(write_documents("d.h5", {1, 9, 1}), "--data.long_documents=drop")
          .find(": 2 of its 3 documents have one token, behind which nothing is to be predicted, and the "
                "others are longer than data.sequence (4): "),
      std::string::npos);
}

TEST_F(Attributes, TokensThatEndTextsAreThoseOfAllFiles) {
  using Tokens = std::vector<std::int32_t>;
  EXPECT_EQ(opened().ends, Tokens{});
  for (const std::int32_t id : {-1, 0, 4, 9}) {
    add_array("eos_id", H5T_NATIVE_INT32, 1, &id);
    EXPECT_EQ(opened().ends, id < 0 ? Tokens{} : Tokens{id});
  }
  write_hdf5("b.h5", "tokens", count_up(0, 12));
  const std::int32_t four = 4, far = 300;
  add_attribute("b.h5", "eos_id", H5T_NATIVE_INT32, &four);
  EXPECT_EQ(open_tokens({at("*.h5")}, "auto", "data.train")->tokenizer().ends, (Tokens{4, 9}));
  EXPECT_EQ(open_tokens({write("a.txt", "text")}, "auto", "data.train")->tokenizer().ends, Tokens{256});
  add_array("eos_id", H5T_NATIVE_INT32, 1, &far);
  EXPECT_EQ(
      error_of([&] { open_datasets(deck(at("a.h5"), {"--model.vocab_size=300"})); }),
      "model.vocab_size (300) is not above token 300, which ends the texts of the data (eos_id): give more");
  const std::int32_t vocab = 300;
  add_array("vocab_size", H5T_NATIVE_INT32, 1, &vocab);
  EXPECT_EQ(error("eos_id"), "is 300, and neither -1 (none) nor an id below its vocab_size (300)");
}

TEST_F(Attributes, TurnsOfChatsEndTextsToo) {
  using Tokens = std::vector<std::int32_t>;
  const std::int32_t vocab = 300, end = 9, ids[] = {12, 9, 5}, far = 300;
  add_array("vocab_size", H5T_NATIVE_INT32, 1, &vocab);
  add_array("turn_end_ids", H5T_NATIVE_INT32, 3, ids);
  EXPECT_EQ(opened().ends, (Tokens{5, 9, 12}));
  add_array("eos_id", H5T_NATIVE_INT32, 1, &end);
  EXPECT_EQ(opened().ends, (Tokens{5, 9, 12}));
  add_array("turn_end_ids", H5T_NATIVE_INT32, 1, &far);
  EXPECT_EQ(error("turn_end_ids"), "holds 300, which is no id below its vocab_size (300)");
  const std::vector<std::int32_t> many(101, 1);
  add_array("turn_end_ids", H5T_NATIVE_INT32, 101, many.data());
  EXPECT_EQ(error("turn_end_ids"), "must be 1 to 100 integers, but is 101 of them");
}

// ---- cost

TEST_F(Opened, OpeningThatTakesLongIsSaid) {
  const config::Deck d =
      deck(write_documents("a.h5", {4, 4}), {"--model.vocab_size=300", "--data.validation_fraction=0"});
  Datasets sets = open_datasets(d);
  EXPECT_GT(sets.seconds, 0);
  EXPECT_LT(sets.seconds, 2);
  EXPECT_EQ(describe(d, sets).back().first, "data");
  sets.seconds = 12.34;
  EXPECT_EQ(describe(d, sets).back().first, "opening");
  EXPECT_EQ(
      describe(d, sets).back().second,
      "12.3 s for the data: every rank reads document offsets and masks whole, and packs the documents");
  const config::Deck ids = deck(write_ids<std::uint16_t>("a.bin", Ids(100, 1)), {"--model.vocab_size=300"});
  Datasets plain = open_datasets(ids);
  plain.seconds = 12.34;
  EXPECT_EQ(describe(ids, plain).back().second, "12.3 s for the data");
}

/// The largest resident set of a process that makes pieces and, if that is asked for, packs them, in bytes.
std::int64_t peak_of(std::int64_t count, const std::function<void(std::vector<Piece>)>& use) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<Piece> pieces(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      pieces[static_cast<std::size_t>(i)] = {4000 * i, static_cast<std::int32_t>(2 + i * 7919 % 4000)};
    use(std::move(pieces));
    ::_exit(0);
  }
  int status = -1;
  rusage usage{};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

TEST(PackingMemory, IsWhatTheHeaderSays) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "freed memory stays resident";
#endif
  constexpr std::int64_t count = 6'000'000, slack = 8 << 20;
  const std::int64_t before = peak_of(count, [](const std::vector<Piece>&) {});
  const std::int64_t packed =
      peak_of(count, [](std::vector<Piece> pieces) { pack(std::move(pieces), {4096}); });
  // Rows hold two documents; 16 bytes a piece are those that were there.
  EXPECT_LT(packed - before, (40 - 16) * count + 8 * (count / 2) * 11 / 10 + slack);
}

// ---- tokenizers

/// The process as a user who may not read everything; tests in containers run as root.
class WithoutRights {
 public:
  WithoutRights() : user_(::geteuid()) { EXPECT_EQ(::seteuid(user_ == 0 ? 65534 : user_), 0); }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;
  ~WithoutRights() { EXPECT_EQ(::seteuid(user_), 0); }

 private:
  uid_t user_;
};

TEST_F(Opened, ATokenizerThatCannotBeReadIsAWarning) {
  const std::string path = write("tokenizer.json", "a tokenizer");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  Tokenizer tokenizer;
  tokenizer.name = "some", tokenizer.hash = "16bc8051c67e9d8d";
  std::string text;
  uid_t user = 0;
  {
    const WithoutRights other;
    user = ::geteuid();
    text = compare_with_model(tokenizer, folder_.string());
  }
  EXPECT_EQ(
      text,
      "warning: the data were tokenised with some (tokenizer.json 16bc8051c67e9d8d), and cannot read '" +
          path + "': Permission denied; it, and the folders above it, must be open to this user (number " +
          std::to_string(user) + ")");
}

/// Of which nothing is ever read.
class EndlessTokens : public TokenSource {
 public:
  std::int64_t size() const override { return std::int64_t{1} << 36; }
  void read(std::int64_t, std::int64_t, std::int32_t*) const override { FAIL(); }
  std::uint64_t identity() const override { return 0; }
  std::int64_t known_vocab() const override { return 0; }
  Place locate(std::int64_t position) const override { return {"endless.h5", position}; }
};

TEST(PackingMemory, MorePiecesThanMemoryHoldsAreRefused) {
  EXPECT_EQ(
      error_of([] {
        cut_documents(EndlessTokens(), {32, LongDocuments::split}, "data.train");
      }),
      "data.train: 'endless.h5': its 68719476736 tokens in 1 documents would be 2147483648 pieces of "
      "rows of data.sequence = 32, more than the 268435456 that one source may be packed from: give a longer "
      "data.sequence, data.packing = \"windows\", or files of their own in data.train with data.weights");
}

}  // namespace
}  // namespace ztrain::data::datasets_test
