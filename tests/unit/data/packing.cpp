// Documents: packing, rows, masks, what is held out, and files that cannot be right.
#include "data/rows/packing.hpp"

#include <map>

#include "base/hash.hpp"
#include "data/datasets.hpp"
#include "data/rows/document_rows.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::packing_test {
namespace {

using Documents = Data;
using Lengths = std::vector<std::int64_t>;

std::vector<Piece> pieces_of(const Lengths& lengths) {
  std::vector<Piece> pieces;
  std::int64_t begin = 0;
  for (const auto length : lengths) {
    pieces.push_back({begin, static_cast<std::int32_t>(length)});
    begin += length;
  }
  return pieces;
}

std::vector<Lengths> rows_of(const PackedRows& packed) {
  std::vector<Lengths> rows;
  for (std::size_t r = 0; r + 1 < packed.first.size(); ++r) {
    rows.emplace_back();
    for (auto p = packed.first[r]; p < packed.first[r + 1]; ++p)
      rows.back().push_back(packed.pieces[static_cast<std::size_t>(p)].length);
  }
  return rows;
}

/// Best-fit decreasing as plainly as it can be written.
std::vector<Lengths> reference(Lengths lengths, std::int64_t sequence, std::int64_t most) {
  std::stable_sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<Lengths> rows;
  std::vector<std::int64_t> space;
  std::vector<std::size_t> touched;  // when a row was last filled
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t best = rows.size();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (space[r] < lengths[i] || (most > 0 && static_cast<std::int64_t>(rows[r].size()) == most)) continue;
      const bool better = best == rows.size() || space[r] < space[best] ||
                          (space[r] == space[best] && touched[r] > touched[best]);
      if (better) best = r;
    }
    if (best == rows.size()) rows.emplace_back(), space.push_back(sequence), touched.push_back(0);
    rows[best].push_back(lengths[i]);
    space[best] -= lengths[i];
    touched[best] = i;
  }
  return rows;
}

// ---- packing

TEST(Packing, IsBestFitDecreasing) {
  EXPECT_EQ(rows_of(pack(pieces_of({3, 7, 2, 5, 4, 9}), {10})),
            (std::vector<Lengths>{{9}, {7, 3}, {5, 4}, {2}}));
  std::uint64_t state = 1;
  for (const std::int64_t sequence : {1, 2, 63, 64, 65, 200, 4097}) {
    for (const std::int64_t most : {0, 1, 3}) {
      Lengths lengths;
      for (int i = 0; i < 300; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        lengths.push_back(1 +
                          static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(sequence)));
      }
      const PackedRows packed = pack(pieces_of(lengths), {sequence, LongDocuments::truncate, most});
      EXPECT_EQ(rows_of(packed), reference(lengths, sequence, most)) << sequence << " " << most;
      EXPECT_EQ(packed.pieces.size(), lengths.size());
    }
  }
}

TEST(Packing, TakesMillionsOfDocuments) {
  Lengths lengths(2000000);
  std::uint64_t state = 5;
  std::int64_t tokens = 0;
  for (auto& length : lengths) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    length = 2 + static_cast<std::int64_t>((state >> 33) % 4000);
    tokens += length;
  }
  const PackedRows packed = pack(pieces_of(lengths), {4096});
  const auto full = static_cast<double>(tokens) / static_cast<double>(packed.rows() * 4096);
  EXPECT_GT(full, 0.99);
  EXPECT_EQ(packed.pieces.size(), lengths.size());
}

// ---- cutting

TEST_F(Documents, LongOnesAreTruncatedSplitOrDropped) {
  const auto source = open_tokens({write_documents("a.h5", {3, 10, 9, 1, 4})}, "auto", "data.train");
  const auto cut = [&](LongDocuments rule) { return cut_documents(*source, {4, rule}, "data.train"); };
  const auto listed = [](const CutDocuments& c) {
    std::vector<std::vector<std::int64_t>> all;
    for (const Piece& p : c.pieces) all.push_back({p.begin, p.length, p.trained, p.continues});
    return all;
  };
  using List = std::vector<std::vector<std::int64_t>>;
  const CutDocuments first = cut(LongDocuments::truncate);
  EXPECT_EQ(listed(first), (List{{0, 3, 2, 0}, {3, 4, 4, 1}, {13, 4, 4, 1}, {23, 4, 3, 0}}));
  EXPECT_EQ(first.counts.documents, 5);
  EXPECT_EQ(first.counts.truncated, 2);
  EXPECT_EQ(first.counts.untrained, 1);  // a single token has no target
  // The last part of the document of 9 is one token, which is the target of the part before it.
  EXPECT_EQ(listed(cut(LongDocuments::split)), (List{{0, 3, 2, 0},
                                                     {3, 4, 4, 1},
                                                     {7, 4, 4, 1},
                                                     {11, 2, 1, 0},
                                                     {13, 4, 4, 1},
                                                     {17, 4, 4, 1},
                                                     {23, 4, 3, 0}}));
  EXPECT_EQ(cut(LongDocuments::split).counts.split, 2);
  EXPECT_EQ(listed(cut(LongDocuments::drop)), (List{{0, 3, 2, 0}, {23, 4, 3, 0}}));
  EXPECT_EQ(cut(LongDocuments::drop).counts.dropped, 2);
}

TEST_F(Documents, MasksDecideWhatIsTrained) {
  // Documents of 4, 3, 6 tokens; the second is not trained at all, the third only beyond the cut.
  write_documents("a.h5", {4, 3, 6}, {1, 0, 1, 1, /**/ 1, 0, 0, /**/ 0, 0, 0, 0, 0, 1});
  const auto source = open_tokens({at("a.h5")}, "auto", "data.train");
  const CutDocuments cut = cut_documents(*source, {4}, "data.train");
  ASSERT_EQ(cut.pieces.size(), 1u);
  EXPECT_EQ(cut.pieces[0].trained, 2u);
  EXPECT_EQ(cut.counts.untrained, 2);
  EXPECT_EQ(cut.counts.truncated, 1);
  EXPECT_EQ(cut_documents(*source, {5}, "data.train").pieces.size(),
            2u);  // the token after the cut is a target
  // The offsets and the whole mask are hashed, what is beyond the cut included.
  write_documents("b.h5", {4, 3, 6}, {1, 0, 1, 1, /**/ 1, 0, 0, /**/ 0, 0, 0, 0, 0, 0});
  const auto other = open_tokens({at("b.h5")}, "auto", "data.train");
  EXPECT_NE(cut_documents(*other, {4}, "data.train").content, cut.content);
}

TEST_F(Documents, LongMasksAreStreamed) {
  // Blocks of 2^20 tokens; documents lie across their ends.
  const std::int64_t count = 4000, length = 600;
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(count * length), 0);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 7 == 0 || i % 11 == 3;
  const auto source =
      open_tokens({write_documents("a.h5", Lengths(static_cast<std::size_t>(count), length), mask)}, "auto",
                  "data.train");
  const CutDocuments cut = cut_documents(*source, {1024}, "data.train");
  ASSERT_EQ(cut.pieces.size(), static_cast<std::size_t>(count));
  for (const Piece& p : cut.pieces) {
    const auto begin = mask.begin() + p.begin + 1;
    ASSERT_EQ(p.trained, static_cast<std::uint32_t>(std::accumulate(begin, begin + length - 1, 0)))
        << p.begin;
  }
}

// ---- rows

TEST_F(Documents, RowsHoldWholeDocumentsAndPadding) {
  const std::string file = write_documents("a.h5", {3, 5}, {0, 0, 1, /**/ 0, 1, 0, 1, 1});
  const CheckedTokens tokens{open_tokens({file}, "auto", "data.train"), "data.train", 300};
  const auto packed =
      std::make_shared<const PackedRows>(pack(cut_documents(*tokens.source, {10}, "").pieces, {10}));
  const DocumentRows rows(tokens, packed, 10, {0, packed->rows()});
  Batch batch(20);
  fill_in_order(rows, 0, 2, batch.view());
  EXPECT_EQ(batch.tokens, (Ids{3, 4, 5, 6, 7, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets, (Ids{4, 5, 6, 7, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(batch.starts, (Ids{0, 0, 0, 0, 0, 5, 5, 5, 8, 8, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}));
  EXPECT_EQ(rows.counts().documents, 2);
  EXPECT_EQ(rows.counts().tokens, 8);
  EXPECT_EQ(rows.counts().trained, 4);
}

/// Whatever the rule: every trained token is a target exactly once, from the token before it.
TEST_F(Documents, SplitDocumentsLoseNoTarget) {
  const Lengths lengths{3, 17, 8, 9, 33, 2, 16};
  const CheckedTokens tokens{open_tokens({write_documents("a.h5", lengths)}, "auto", "data.train"), "", 300};
  const PackingOptions options{8, LongDocuments::split, 2};
  const auto packed =
      std::make_shared<const PackedRows>(pack(cut_documents(*tokens.source, options, "").pieces, options));
  const DocumentRows rows(tokens, packed, 8, {0, packed->rows()});
  std::map<std::int32_t, int> targets;
  Batch batch(8);
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    fill_in_order(rows, r, 1, batch.view());
    for (std::size_t i = 0; i < 8; ++i) {
      if (batch.weights[i] == 0) continue;
      EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
      ++targets[batch.targets[i]];
    }
  }
  std::map<std::int32_t, int> expected;
  std::int32_t token = 0;
  for (const auto length : lengths)
    for (std::int64_t i = 0; i < length; ++i, ++token)
      if (i > 0) expected[token] = 1;
  EXPECT_EQ(targets, expected);
}

TEST_F(Documents, FilesJoinAndSomeHaveNoMask) {
  write_documents("a.h5", {3, 4}, {1, 1, 0, 0, 0, 0, 1});
  write_documents("b.h5", {5});
  const auto source = open_tokens({at("*.h5")}, "auto", "data.train");
  EXPECT_EQ(source->document_offsets(), (Lengths{0, 3, 7, 12}));
  std::vector<std::uint8_t> mask(12);
  source->read_mask(0, 12, mask.data());
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
  write_hdf5("c.h5", "tokens", count_up(0, 9));
  EXPECT_EQ(open_error(at("*.h5")),
            "data.train: '" + at("a.h5") + "' says where its documents begin (document_offsets) and '" +
                at("c.h5") +
                "' does not; do not mix them, or make them entries of their own with data.weights");
}

// ---- datasets

TEST_F(Documents, RowsAreHeldOut) {
  const std::string file = write_documents("a.h5", Lengths(40, 4));
  const std::vector<std::string> more{"--model.vocab_size=300", "--data.validation_fraction=0.1"};
  const Datasets sets = open_datasets(deck(file, more));
  EXPECT_EQ(sets.train[0].rows->rows(), 36);
  ASSERT_EQ(sets.validation.size(), 1u);
  EXPECT_EQ(sets.validation[0].rows->rows(), 4);
  std::vector<std::int32_t> first;
  Batch batch(4);
  for (const auto* set : {&sets.train[0], &sets.validation[0]})
    for (std::int64_t r = 0; r < set->rows->rows(); ++r) {
      fill_in_order(*set->rows, r, 1, batch.view());
      first.push_back(batch.tokens[0]);
    }
  std::sort(first.begin(), first.end());
  for (std::int32_t d = 0; d < 40; ++d) EXPECT_EQ(first[static_cast<std::size_t>(d)], 4 * d);
  EXPECT_EQ(describe(sets.train[0]),
            "packed documents: 36 rows of 4, 36 documents, 144 tokens (100.0% of the "
            "rows), 108 trained");
}

TEST_F(Documents, IdentityKnowsMaskOffsetsAndOptions) {
  const auto identity = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"--model.vocab_size=300", "--data.validation_fraction=0"};
    all.insert(all.end(), more.begin(), more.end());
    return identity_of(open_datasets(deck(at("a.h5"), all))).train;
  };
  write_documents("a.h5", {3, 5}, {1, 1, 1, 1, 1, 1, 1, 1});
  const std::uint64_t before = identity();
  EXPECT_EQ(identity(), before);
  EXPECT_NE(identity({"--data.packing=windows"}), before);
  EXPECT_NE(identity({"--data.long_documents=drop"}), before);
  EXPECT_NE(identity({"--data.max_documents=1"}), before);
  write_documents("a.h5", {3, 5}, {1, 1, 1, 1, 1, 0, 1, 1});
  EXPECT_NE(identity(), before);
  write_documents("a.h5", {4, 4}, {1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_NE(identity(), before);
}

TEST_F(Documents, WindowsTakeMasksToo) {
  const std::string file = write_documents("a.h5", {9}, {0, 0, 1, 0, 1, 1, 0, 0, 1});
  const Datasets sets = open_datasets(
      deck(file, {"--model.vocab_size=300", "--data.validation_fraction=0", "--data.packing=windows"}));
  Batch batch(8);
  fill_in_order(*sets.train[0].rows, 0, 2, batch.view());
  EXPECT_EQ(batch.weights, (std::vector<float>{0, 1, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(describe(sets.train[0]), "2 windows of 4 tokens, 4 trained");
}

// ---- files that cannot be right

TEST_F(Documents, BrokenFilesAreNamed) {
  const auto error = [&](const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"--model.vocab_size=300", "--data.validation_fraction=0"};
    all.insert(all.end(), more.begin(), more.end());
    return error_of([&] { open_datasets(deck(at(name), all)); });
  };
  const auto offsets_error = [&](const std::string& name, const Lengths& offsets) {
    write_hdf5(name, "tokens", count_up(0, 12));
    add_dataset(name, "document_offsets", H5T_NATIVE_INT64, offsets);
    const std::string text = error(name), start = "data.train: document_offsets of '" + at(name) + "' ";
    return text.rfind(start, 0) == 0 ? text.substr(start.size()) : text;
  };
  EXPECT_EQ(offsets_error("a.h5", {0, 5, 3, 12}), "do not increase: [1] is 5 and [2] is 3");
  EXPECT_EQ(offsets_error("b.h5", {0, 5, 5, 12}), "do not increase: [1] is 5 and [2] is 5");
  EXPECT_EQ(offsets_error("c.h5", {0, 5, 13}), "go from 0 to 13; they must go from 0 to its 12 tokens");
  EXPECT_EQ(offsets_error("d.h5", {2, 5, 12}), "go from 2 to 12; they must go from 0 to its 12 tokens");
  EXPECT_EQ(offsets_error("many.h5", Lengths(14, 0)),
            "data.train: the dataset \"document_offsets\" of '" + at("many.h5") +
                "' has 14 items, and its 12 tokens are not so many documents");
  write_documents("e.h5", {3, 4}, {1, 1, 1});
  EXPECT_EQ(error("e.h5"), "data.train: the dataset \"loss_mask\" of '" + at("e.h5") +
                               "' must be one integer for each of its 7 tokens, but is 3 integers");
  write_documents("booleans.h5", {3, 4});
  const hid_t boolean = H5Tenum_create(H5T_NATIVE_INT8);  // as h5py writes NumPy's
  for (const std::int8_t value : {std::int8_t{0}, std::int8_t{1}})
    H5Tenum_insert(boolean, value == 0 ? "FALSE" : "TRUE", &value);
  add_dataset("booleans.h5", "loss_mask", boolean, std::vector<std::int8_t>(7, 1));
  H5Tclose(boolean);
  EXPECT_TRUE(error("booleans.h5").ends_with("integers (of NumPy's booleans: mask.astype(\"uint8\"))"));
  write_documents("f.h5", {3, 4}, {1, 0, 0, 1, 0, 0, 0});
  EXPECT_EQ(error("f.h5"),
            "data.train: '" + at("f.h5") +
                "': no token behind the first of a document is to be predicted (loss_mask) in its 2 "
                "documents, 0 of them truncated to data.sequence (4)");
  write_documents("w.h5", {3, 4}, {1, 0, 0, 0, 0, 0, 0});  // the first token is no target
  EXPECT_EQ(error("w.h5", {"--data.packing=windows"}),
            "data.train: '" + at("w.h5") + "': no token is to be predicted (loss_mask) in its 1 window");
  write_documents("g.h5", {3, 4}, {1, 0, 1, 1, 7, 0, 0});
  EXPECT_EQ(error("g.h5"), "data.train: loss_mask[4] of '" + at("g.h5") + "' is neither 1 (predicted) nor 0");
  // What the type that masks are kept in has no room for is no 0 and no 1 either.
  for (const std::int64_t far : {-1, -256, 256, 257}) {
    write_documents("far.h5", {3, 4});
    add_dataset("far.h5", "loss_mask", H5T_NATIVE_INT64, std::vector<std::int64_t>{1, 0, 1, 1, far, 0, 0});
    EXPECT_NE(error("far.h5").find("loss_mask[4]"), std::string::npos) << far;
  }
  write_documents("h.h5", {6, 7});
  EXPECT_EQ(error("h.h5", {"--data.long_documents=drop"}),
            "data.train: '" + at("h.h5") +
                "': all 2 documents are longer than data.sequence (4), and data.long_documents = \"drop\"");
  write_hdf5("i.h5", "tokens", count_up(0, 12));
  EXPECT_NE(error("i.h5", {"--data.packing=documents"}).find("does not say where its documents begin"),
            std::string::npos);
}

TEST_F(Documents, TokenizersAreComparedWithTheModels) {
  Tokenizer tokenizer;
  EXPECT_EQ(compare_with_model(tokenizer, folder_.string()), "");
  write("tokenizer.json", "a tokenizer");
  EXPECT_EQ(compare_with_model(tokenizer, folder_.string()), "");
  tokenizer.name = "some";
  tokenizer.hash = "16bc8051c67e9d8d";  // xxhash.xxh3_64(b"a tokenizer").hexdigest() of Python
  EXPECT_EQ(compare_with_model(tokenizer, folder_.string()), "some, that of " + folder_.string());
  EXPECT_EQ(compare_with_model(tokenizer, ""), "");
  tokenizer.hash = "0011223344556677";
  EXPECT_EQ(compare_with_model(tokenizer, folder_.string()),
            "warning: the data were tokenised with some (tokenizer.json 0011223344556677), " +
                folder_.string() + " has another (16bc8051c67e9d8d)");
}

TEST_F(Documents, TokenizersMustGoTogether) {
  const auto tokenised = [&](const std::string& name, const std::string& hash, const std::string& chat,
                             std::int64_t vocab) {
    write_documents(name, {5, 5, 5});
    add_attribute(name, "tokenizer", "some");
    add_attribute(name, "tokenizer_hash", hash);
    add_attribute(name, "chat_template_hash", chat);
    add_attribute(name, "vocab_size", H5T_NATIVE_INT64, &vocab);
    return at(name);
  };
  const auto error = [&](const std::vector<std::string>& more) {
    return error_of([&] { open_datasets(deck(at("*.h5"), more)); });
  };
  const std::string a = tokenised("a.h5", "0011223344556677", "", 40);
  Datasets sets = open_datasets(deck(a));
  EXPECT_EQ(sets.vocab_size, 40);
  EXPECT_EQ(identity_of(sets).tokenizer, "0011223344556677");
  EXPECT_EQ(error({"--model.vocab_size=39"}),
            "model.vocab_size (39) is below the vocabulary of '" + a + "' (40); give that or more");
  config::Deck fixed = deck(a, {"--model.vocab_size=39"});
  fixed.model.from = "my-llama";
  EXPECT_EQ(
      error_of([&] { open_datasets(fixed); }),
      "'" + a +
          "' was made with another tokenizer ('some', 40 ids) than the model of model.from has "
          "(model.vocab_size, 39): prepare it with the tokenizer of that model, or, if it is that tokenizer "
          "with new tokens, set model.add_tokens = 1");
  const std::string b = tokenised("b.h5", "0011223344556677", "aa", 50);
  sets = open_datasets(deck(at("*.h5")));
  EXPECT_EQ(sets.vocab_size, 50);
  EXPECT_EQ(identity_of(sets).chat_template, "aa");
  const std::string c = tokenised("c.h5", "0011223344556677", "bb", 40);
  EXPECT_EQ(error({}),
            "data.train: '" + b + "' and '" + c +
                "' were made with different chat templates (aa and bb); prepare both with the same");
  std::filesystem::remove(c);
  const std::string d = tokenised("d.h5", "8811223344556677", "", 40);
  EXPECT_EQ(error({}), "data.train: '" + a +
                           "' was tokenised with some (tokenizer.json 0011223344556677) and '" + d +
                           "' with some (8811223344556677); prepare both with the same tokenizer");
  EXPECT_EQ(
      error_of([&] { open_datasets(deck(a, {"--data.validation=" + d})); }).rfind("data.validation: ", 0),
      0u);
}

}  // namespace
}  // namespace ztrain::data::packing_test
