#include "data/hdf5_tokens.hpp"

#include <algorithm>
#include <mutex>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/hdf5_lock.hpp"
#include "data/identity.hpp"

namespace ztrain::data {
namespace {

/// Holds the library's lock, and keeps the library from printing: failures become errors of ours.
class Quiet {
 public:
  Quiet() : lock_(hdf5_mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &client_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet() { H5Eset_auto2(H5E_DEFAULT, print_, client_); }

 private:
  std::scoped_lock<std::recursive_mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* client_ = nullptr;
};

/// A handle of the library, closed by the function that fits it.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

}  // namespace

Hdf5Tokens::Hdf5Tokens(const std::vector<std::string>& files, const std::string& key) {
  try {
    for (const auto& path : files) open(path, key);
  } catch (...) {
    close();
    throw;
  }
}

Hdf5Tokens::~Hdf5Tokens() {
  close();
}

void Hdf5Tokens::open(const std::string& path, const std::string& key) {
  const Quiet quiet;
  Part& part = parts_.emplace_back();
  part.path = path;
  part.begin = size_;
  part.file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  REQUIRE(part.file >= 0, "{}: '{}' cannot be opened as an HDF5 file", key, path);
  part.dataset = H5Dopen2(part.file, "tokens", H5P_DEFAULT);
  REQUIRE(part.dataset >= 0, "{}: '{}' has no dataset \"tokens\"", key, path);
  const Handle type(H5Dget_type(part.dataset), H5Tclose);
  const Handle space(H5Dget_space(part.dataset), H5Sclose);
  REQUIRE(H5Tget_class(type.get()) == H5T_INTEGER && H5Sget_simple_extent_ndims(space.get()) == 1,
          "{}: the dataset \"tokens\" of '{}' is not a one-dimensional array of integers", key, path);
  part.tokens = H5Sget_simple_extent_npoints(space.get());
  REQUIRE(part.tokens > 0, "{}: the dataset \"tokens\" of '{}' is empty", key, path);
  size_ += part.tokens;
}

void Hdf5Tokens::close() {
  const Quiet quiet;
  for (const auto& part : parts_) {
    if (part.dataset >= 0) H5Dclose(part.dataset);
    if (part.file >= 0) H5Fclose(part.file);
  }
  parts_.clear();
}

std::size_t Hdf5Tokens::part_of(std::int64_t position) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), position,
                                      [](std::int64_t at, const Part& part) { return at < part.begin; });
  return static_cast<std::size_t>(after - parts_.begin()) - 1;
}

void Hdf5Tokens::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  REQUIRE(begin >= 0 && count >= 0 && begin <= size_ - count,
          "tokens [{}, {}) are outside the {} tokens of '{}', ...", begin, begin + count, size_,
          parts_.front().path);
  const Quiet quiet;
  for (std::size_t p = count > 0 ? part_of(begin) : 0; count > 0; ++p) {
    const Part& part = parts_[p];
    const hsize_t offset = static_cast<hsize_t>(begin - part.begin);
    const std::int64_t here = std::min(count, part.begin + part.tokens - begin);
    const hsize_t length = static_cast<hsize_t>(here);
    const Handle file_space(H5Dget_space(part.dataset), H5Sclose);
    const Handle memory_space(H5Screate_simple(1, &length, nullptr), H5Sclose);
    const bool ok =
        H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &offset, nullptr, &length, nullptr) >= 0 &&
        H5Dread(part.dataset, H5T_NATIVE_INT32, memory_space.get(), file_space.get(), H5P_DEFAULT, out) >= 0;
    REQUIRE(ok, "tokens [{}, {}) of '{}' cannot be read", offset, offset + length, part.path);
    begin += here, count -= here, out += here;
  }
}

std::uint64_t Hdf5Tokens::identity() const {
  constexpr std::int64_t samples = 16, length = 1024;
  std::uint64_t hash = 0;
  std::vector<std::int32_t> sample(static_cast<std::size_t>(length));
  for (const auto& part : parts_) {
    std::uint64_t content = 0;
    const std::int64_t count = std::min(length, part.tokens);
    for (std::int64_t i = 0; i < samples; ++i) {
      read(part.begin + (part.tokens - count) / (samples - 1) * i, count, sample.data());
      content = hash_bytes(sample.data(), static_cast<std::size_t>(count) * sizeof(std::int32_t), content);
    }
    hash = identity_of(hash, part.path, part.tokens, content);
  }
  return hash;
}

Place Hdf5Tokens::locate(std::int64_t position) const {
  const Part& part = parts_[part_of(position)];
  return {part.path, position - part.begin};
}

}  // namespace ztrain::data
