#pragma once
// Token files that tests write, in every layout.

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/text/load.hpp"
#include "data/rows/row_source.hpp"
#include "data/tokens/token_source.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::data {

using Ids = std::vector<std::int32_t>;

using test::error_of;

/// Gives each test a folder of its own to write token files into.
class Data : public testing::Test {
 protected:
  Data() : folder_(std::filesystem::temp_directory_path() / ("ztrain_data_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Data() override { std::filesystem::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(at(name), std::ios::binary) << bytes;
    return at(name);
  }
  template <class T>
  std::string write_ids(const std::string& name, const Ids& ids, const Ids& header = {}) const {
    std::ofstream file(at(name), std::ios::binary);
    if (!header.empty()) {
      Ids whole(256, 0);
      std::copy(header.begin(), header.end(), whole.begin());
      file.write(reinterpret_cast<const char*>(whole.data()), 1024);
    }
    for (const auto id : ids) {
      const T value = static_cast<T>(id);
      file.write(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    return at(name);
  }
  std::string write_hdf5(const std::string& name, const std::string& dataset, const Ids& ids,
                         int rank = 1) const {
    const hsize_t dims[2] = {ids.size(), 1};
    const hid_t file = H5Fcreate(at(name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(rank, dims, nullptr);
    const hid_t set =
        H5Dcreate2(file, dataset.c_str(), H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (!ids.empty()) H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data());
    H5Dclose(set), H5Sclose(space), H5Fclose(file);
    return at(name);
  }

  /// A file of documents of these lengths, with ids counting up from 0. mask: empty for none.
  std::string write_documents(const std::string& name, const std::vector<std::int64_t>& lengths,
                              const std::vector<std::uint8_t>& mask = {}) const {
    std::vector<std::int64_t> offsets(1, 0);
    for (const auto length : lengths) offsets.push_back(offsets.back() + length);
    Ids ids(static_cast<std::size_t>(offsets.back()));
    std::iota(ids.begin(), ids.end(), 0);
    write_hdf5(name, "tokens", ids);
    add_dataset(name, "document_offsets", H5T_NATIVE_INT64, offsets);
    if (!mask.empty()) add_dataset(name, "loss_mask", H5T_NATIVE_UINT8, mask);
    return at(name);
  }
  template <class T>
  void add_dataset(const std::string& name, const char* dataset, hid_t type,
                   const std::vector<T>& items) const {
    const hsize_t count = items.size();
    const hid_t file = H5Fopen(at(name).c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t set = H5Dcreate2(file, dataset, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data());
    H5Dclose(set), H5Sclose(space), H5Fclose(file);
  }
  void add_attribute(const std::string& name, const char* attribute, const std::string& value) const {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    const char* text = value.c_str();
    add_attribute(name, attribute, type, &text);
    H5Tclose(type);
  }
  void add_attribute(const std::string& name, const char* attribute, hid_t type, const void* value) const {
    const hid_t file = H5Fopen(at(name).c_str(), H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
    const hid_t id = H5Acreate2(file, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(id, type, value);
    H5Aclose(id), H5Sclose(space), H5Fclose(file);
  }

  std::string open_error(const std::string& pattern, const std::string& format = "auto") const {
    return error_of([&] { open_tokens({pattern}, format, "data.train"); });
  }

  config::Deck deck(const std::string& train, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> overrides{"--data.train=" + train, "--data.sequence=4"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return config::parse_deck("[batch]\nglobal = 1\n[run]\nsteps = 1\n", at("deck.toml"), overrides);
  }

  std::filesystem::path folder_;
};

/// Owns the arrays of a micro-batch, filled with values that no batch holds.
struct Batch {
  explicit Batch(std::size_t n)
      : tokens(n, -7), targets(n, -7), positions(n, -7), starts(n, -7), weights(n, -7) {}
  MicroBatch view() {
    return {tokens.data(), targets.data(), weights.data(), positions.data(), starts.data()};
  }
  Ids tokens, targets, positions, starts;
  std::vector<float> weights;
};

inline Ids read_all(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.size()));
  source.read(0, source.size(), ids.data());
  return ids;
}

inline Ids count_up(std::int32_t begin, std::int32_t end) {
  Ids ids(static_cast<std::size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

}  // namespace ztrain::data
