#pragma once
// Tokens in HDF5 files: the one-dimensional integer dataset "tokens" of each.

#include <hdf5.h>

#include <string>
#include <vector>

#include "data/token_source.hpp"

namespace ztrain::data {

/// Keeps its files open and reads hyperslabs, under the process's lock of the HDF5 library. Serial calls
/// only: every rank opens the files for itself.
class Hdf5Tokens : public TokenSource {
 public:
  Hdf5Tokens(const std::vector<std::string>& files, const std::string& key);
  Hdf5Tokens(const Hdf5Tokens&) = delete;
  Hdf5Tokens& operator=(const Hdf5Tokens&) = delete;
  ~Hdf5Tokens() override;

  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override;
  std::uint64_t identity() const override;
  std::int64_t vocab_bound() const override { return std::int64_t{1} << 31; }
  std::int64_t known_vocab() const override { return 0; }
  Place locate(std::int64_t position) const override;

 private:
  struct Part {
    std::string path;
    hid_t file = -1, dataset = -1;
    std::int64_t begin = 0, tokens = 0;
  };

  void open(const std::string& path, const std::string& key);
  void close();
  std::size_t part_of(std::int64_t position) const;

  std::vector<Part> parts_;
  std::int64_t size_ = 0;
};

}  // namespace ztrain::data
