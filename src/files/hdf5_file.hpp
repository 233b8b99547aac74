#pragma once
// The only module that calls HDF5. The library is not thread-safe, so every call here holds one process-wide
// lock; bulk bytes do not pass through it (files/posix_file.hpp). Failures are Errors with the file, the
// action and what HDF5's error stack says.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "files/posix_file.hpp"

namespace ztrain {

namespace hdf5 {
class Handle;
}

/// The elements start[d] <= index[d] < start[d] + count[d].
struct Box {
  Shape start, count;
  bool operator==(const Box&) const = default;
};

/// Elements [source_begin, source_begin + count) of a 1-D dataset shown, in order, at the boxes of a virtual
/// dataset.
struct Mapping {
  std::string file;  ///< relative to the folder of the file that holds the virtual dataset
  std::string dataset;
  std::int64_t source_elements = 0;  ///< extent of the whole source dataset
  std::int64_t source_begin = 0;
  std::int64_t count = 0;
  std::vector<Box> boxes;
};

/// Begins to use the library, which talks to MPI when it is first called: to be done by the thread that
/// communicates, before another one has files of it.
void prepare_hdf5();

class Hdf5File {
 public:
  /// The file at path, which is replaced if it exists, stays empty until close(). key: as of
  /// PosixFile::create.
  static Hdf5File create(const std::filesystem::path& path, const char* key = "checkpoint.folder");
  static Hdf5File open_to_read(const std::filesystem::path& path);
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  Hdf5File& operator=(Hdf5File&&) = delete;
  ~Hdf5File();
  /// Puts a created file in its place.
  void close();

  /// Makes a contiguous 1-D dataset whose bytes are allocated now and never filled; gives their offset in the
  /// file. Groups on the way are made.
  std::int64_t reserve(const std::string& name, DType dtype, std::int64_t count);
  /// Elements that no readable source covers read as NaN (integers: 0).
  void add_virtual(const std::string& name, DType dtype, const Shape& shape,
                   std::span<const Mapping> mappings);

  void write(const std::string& name, const Shape& shape, std::span<const std::int64_t> values);
  std::vector<std::int64_t> read(const std::string& name, Shape& shape) const;
  std::vector<double> read_doubles(const std::string& name) const;
  /// Attributes of the root group.
  void set_attribute(const std::string& name, const std::string& text);
  std::string attribute(const std::string& name) const;

 private:
  enum class Access : std::uint8_t { create, read };

  Hdf5File(std::filesystem::path path, Access access_to, const char* key = "");
  void move_to_memory();
  /// type: hid_t of T.
  template <class T>
  std::vector<T> read_all(const std::string& name, Shape& shape, std::int64_t type) const;
  hdf5::Handle make_space(const Shape& shape, const char* action, const std::string& name) const;
  /// Groups on the way are made. type, space and how it is made: hid_t.
  hdf5::Handle make_dataset(const std::string& name, std::int64_t type, std::int64_t space,
                            std::int64_t how) const;
  template <class Id>
  Id check(Id id, const char* action, const std::string& object) const;

  std::filesystem::path path_;
  Access access_;
  const char* key_;
  PosixFile memory_;        ///< what the library works on
  std::int64_t file_ = -1;  ///< hid_t
};

}  // namespace ztrain
