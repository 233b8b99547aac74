// Token files of every layout.

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "bytes.hpp"
#include "case.hpp"
#include "config/text/load.hpp"
#include "data/datasets.hpp"
#include "files/hdf5_handle.hpp"
#include "hdf5_mutation.hpp"

namespace ztrain::damaged_files {
namespace {

namespace fs = std::filesystem;
using hdf5::Handle;
using Ids = std::vector<std::int32_t>;

constexpr std::int64_t vocabulary = 257;
constexpr std::size_t token_count = 600;

Ids sound_ids() {
  Ids ids(token_count);
  for (std::size_t i = 0; i < token_count; ++i) ids[i] = static_cast<std::int32_t>(i * i * 7 % vocabulary);
  return ids;
}

template <class T>
void write_ids(const fs::path& path, const std::string& header) {
  std::string bytes = header;
  for (const std::int32_t id : sound_ids()) {
    const T value = static_cast<T>(id);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  write_bytes(path, bytes);
}

/// As llm.c's scripts write it.
std::string header_of(std::int32_t magic, std::int32_t version) {
  Ids words(256, 0);
  words[0] = magic, words[1] = version, words[2] = token_count;
  return {reinterpret_cast<const char*>(words.data()), 1024};
}

template <class T>
void write_dataset(hid_t file, const char* name, hid_t stored, hid_t type, const std::vector<T>& items,
                   bool chunked) {
  const hsize_t size = items.size(), chunk = 64;
  const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose),
      storage(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (chunked) {
    H5Pset_chunk(storage, 1, &chunk);
    H5Pset_deflate(storage, 1);
  }
  const Handle set(H5Dcreate2(file, name, stored, space, H5P_DEFAULT, storage, H5P_DEFAULT), H5Dclose);
  H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data());
}

void write_attribute(hid_t file, const char* name, const char* text) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
  H5Tset_size(type, H5T_VARIABLE);
  const Handle attribute(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  H5Awrite(attribute, type, &text);
}

void write_attribute(hid_t file, const char* name, std::int64_t value) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(file, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  H5Awrite(attribute, H5T_NATIVE_INT64, &value);
}

/// As tools/prepare_data.py writes it, or tokens alone.
void write_hdf5(const fs::path& path, bool documents) {
  const hdf5::Quiet quiet;
  const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  // Ids in 16 bits have no sign, those in 32 have.
  write_dataset(file, "tokens", documents ? H5T_STD_U16LE : H5T_STD_I32LE, H5T_NATIVE_INT32, sound_ids(),
                documents);
  if (!documents) return;
  std::vector<std::int64_t> offsets, mask(token_count);
  for (std::int64_t at = 0; at <= static_cast<std::int64_t>(token_count); at += 12) offsets.push_back(at);
  for (std::size_t i = 0; i < token_count; ++i) mask[i] = i % 12 > 4 ? 1 : 0;
  write_dataset(file, "document_offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, offsets, false);
  write_dataset(file, "loss_mask", H5T_STD_U8LE, H5T_NATIVE_INT64, mask, true);
  write_attribute(file, "ztrain_format", std::int64_t{1});
  write_attribute(file, "vocab_size", vocabulary);
  write_attribute(file, "eos_id", std::int64_t{0});
  write_attribute(file, "tokenizer", "bytes");
  write_attribute(file, "tokenizer_hash", "0123456789abcdef");
  write_attribute(file, "chat_template_hash", "");
}

/// A data set of Megatron, of documents of 12 tokens.
void write_megatron(const std::string& name) {
  const auto numbers = [](auto first, auto step, std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i, first += step)
      bytes.append(reinterpret_cast<const char*>(&first), sizeof first);
    return bytes;
  };
  const std::size_t documents = token_count / 12;
  write_ids<std::uint16_t>(name + ".bin", "");
  write_bytes(name + ".idx", std::string("MMIDIDX\0\0", 9) + numbers(std::uint64_t{1}, 0, 1) + '\x08' +
                                 numbers(documents, 1, 2) + numbers(std::int32_t{12}, 0, documents) +
                                 numbers(std::int64_t{0}, 24, documents) +
                                 numbers(std::int64_t{0}, 1, documents + 1));
}

/// What a row of a set may hold.
void judge_row(Case& c, const data::RowSet& set, std::int64_t row, std::int64_t vocab) {
  const auto n = static_cast<std::size_t>(set.rows->sequence());
  std::vector<std::int32_t> tokens(n, -7), targets(n, -7), positions(n, -7), starts(n, -7);
  std::vector<float> weights(n, -7);
  set.rows->fill(row, {{tokens.data(), targets.data(), weights.data(), positions.data(), starts.data()}, 0});
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::int32_t>(i);
    if (tokens[i] < 0 || tokens[i] >= vocab || targets[i] < 0 || targets[i] >= vocab)
      return c.found("accepts tokens outside the vocabulary", fmt::format("{} of row {}", tokens[i], row));
    if (weights[i] != 0 && weights[i] != 1)
      return c.found("accepts a mask that is neither 0 nor 1", fmt::to_string(weights[i]));
    if (starts[i] < 0 || starts[i] > at || positions[i] != at - starts[i])
      return c.found("makes rows with impossible documents", fmt::format("{} of row {}", starts[i], row));
  }
}

/// Read without the program: documents that are packed go from the first token to the last, one after the
/// other.
void judge_offsets(Case& c, const std::string& path) {
  const hdf5::Quiet quiet;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file) return;
  const Handle documents(H5Dopen2(file, "document_offsets", H5P_DEFAULT), H5Dclose),
      tokens(H5Dopen2(file, "tokens", H5P_DEFAULT), H5Dclose);
  if (!documents || !tokens) return;
  const auto items_in = [](const Handle& set) {
    return H5Sget_simple_extent_npoints(Handle(H5Dget_space(set), H5Sclose));
  };
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(items_in(documents)), -1);
  if (offsets.empty()) return;
  H5Dread(documents, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, offsets.data());
  const bool whole = offsets.front() == 0 && offsets.back() == items_in(tokens);
  if (!whole || !std::ranges::is_sorted(offsets, std::ranges::less_equal{}))
    c.found("accepts documents that do not follow each other");
}

void judge_tokens(Case& c, const Words& overrides) {
  const config::Deck deck = config::load_deck("deck.toml", overrides);
  if (deck.data.packing != "windows" && deck.data.format != "text") judge_offsets(c, deck.data.train.front());
  const data::Datasets sets = data::open_datasets(deck);
  if (sets.vocab_size <= 0) c.found("accepts data of no vocabulary");
  for (const auto* list : {&sets.train, &sets.validation})
    for (const data::RowSet& set : *list) {
      const data::RowCounts counts = set.rows->counts();
      if (counts.rows < 1 || counts.tokens < 1 || counts.trained < 1 || counts.trained > counts.tokens)
        c.found("accepts data of no rows, or with more trained than there is",
                fmt::format("{} rows, {} tokens, {} trained", counts.rows, counts.tokens, counts.trained));
      for (std::int64_t row = 0; row < std::min<std::int64_t>(counts.rows, 100); ++row)
        judge_row(c, set, row, sets.vocab_size);
    }
}

}  // namespace

void make_tokens(Case& c) {
  write_bytes(c.folder / "text.txt", sound_text());
  write_bytes(c.folder / "deck.toml", toml_of(small_deck()));
  write_ids<std::uint16_t>("ids16.bin", "");
  write_ids<std::uint32_t>("ids32.bin", "");
  write_ids<std::uint16_t>("gpt2.bin", header_of(20240520, 1));
  write_ids<std::uint32_t>("llama3.bin", header_of(20240801, 7));
  write_megatron("megatron");
  write_hdf5("plain.h5", false);
  write_hdf5("documents.h5", true);
  for (const char* name :
       {"ids16.bin", "ids32.bin", "megatron.bin", "plain.h5", "documents.h5", "text.txt"}) {
    c.run({"check", "deck.toml", fmt::format("--data.train=[\"{}\"]", name)});
    judge_tokens(c, {fmt::format("--data.train=[\"{}\"]", name)});
  }
}

void attack_tokens(Case& c) {
  c.copy("tokens");
  static const std::vector<fs::path> files{"ids16.bin", "ids32.bin",    "gpt2.bin",     "llama3.bin",
                                           "plain.h5",  "documents.h5", "documents.h5", "documents.h5",
                                           "text.txt",  "megatron.bin", "megatron.idx"};
  const fs::path& file = c.random.pick(files);
  if (c.random.one_in(8))
    c.changed(replace_file(file, files, c.random));
  else if (file == "documents.h5" && c.random.one_in(4))
    c.changed(damage_numbers(file, "document_offsets", c.random));
  else if (file.extension() == ".h5" && !c.random.one_in(3))
    c.changed(damage_hdf5(file, c.random));
  else
    c.changed(damage_file(file, c.random));
  Words overrides{fmt::format("--data.train=[\"{}\"]", file.string())};
  const auto maybe = [&](const char* key, const std::vector<std::string>& values) {
    if (c.random.one_in(4)) overrides.push_back(fmt::format("--{}={}", key, c.random.pick(values)));
  };
  maybe("data.packing", {"documents", "windows"});
  maybe("data.format", {"hdf5", "text", "bin-uint16", "bin-uint32", "megatron"});
  maybe("data.long_documents", {"truncate", "split", "drop"});
  maybe("data.sequence", {"1", "4", "8", "64", "300"});
  maybe("model.vocab_size", {"0", "65536", "1000000"});
  maybe("data.max_documents", {"1", "2"});
  maybe("data.validation_fraction", {"0.1", "0.5", "0.99"});
  maybe("data.weights", {"[1]", "[0.5]"});
  Words words{"check", "deck.toml"};
  if (c.random.one_in(6)) words = {"deck.toml"};
  words.insert(words.end(), overrides.begin(), overrides.end());
  const bool reads_all = words[0] == "check";  // a run meets only some rows
  if (!reads_all) words.emplace_back("--run.max_minutes=0.01");
  if (c.run(words).accepted && reads_all) judge_tokens(c, overrides);
}

}  // namespace ztrain::damaged_files
