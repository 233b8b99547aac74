#pragma once
// The HDF5 library's lock, messages and handles. As packaged it is not thread-safe: whoever calls it holds a
// Quiet.

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "files/input_file.hpp"

namespace ztrain::hdf5 {

/// Holds the library's lock, which is one for the process, and keeps the library from printing, from the
/// first one on and at its end too: failures become errors of ours.
class Quiet {
 public:
  Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  std::scoped_lock<std::recursive_mutex> lock_;
};

/// A handle of the library, closed by the function that fits it. Negative: none.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { reset(); }

  operator hid_t() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  void reset();

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

/// Returns the properties that open a file for reading without a file lock. Some parallel file systems refuse
/// locks, and a reader need not know those of others. Under the lock of the library.
Handle access_without_locks();

/// A dataset, none where nothing has that name, and what is wrong with it ("is a virtual dataset, ..."). All
/// its bytes must be in the file itself: what leads into other files, which may be anything, is not followed.
/// Under the lock.
struct Opened {
  Handle dataset;
  std::string fault;  ///< "": nothing
};
Opened open_dataset(hid_t file, const char* name);

/// A filter that the dataset's bytes have gone through, and this library does not have; "": none. Under the
/// lock.
std::string missing_filter(hid_t dataset);

/// Of an open file, now. Under the lock.
FileState state_on_disk(hid_t file);

/// Items of a one-dimensional array of integers; -1 for anything else. Under the lock.
std::int64_t integers_in(hid_t dataset);

/// Reads items [begin, begin + count) as type into out; false when that fails. Under the lock.
bool read_items(hid_t dataset, std::int64_t begin, std::int64_t count, hid_t type, void* out);

/// Where the items of a one-dimensional dataset lie in its file, which stays open: one behind the other.
struct Stretch {
  int descriptor =
      -1;  ///< -1: the dataset is in chunks, of which HDF5 1.10 walks over all to tell where one is
  std::int64_t offset = 0, width = 0;  ///< bytes: of the first item, of each

  /// Asks the system for the bytes of items [begin, begin + count), which are read soon, and returns at once.
  /// A hint: nothing is said of failures.
  void read_ahead(std::int64_t begin, std::int64_t count) const;
};
/// Under the lock.
Stretch stretch_of(hid_t file, hid_t dataset);

/// The root of an open file, and what messages call it.
struct Root {
  hid_t file;
  const std::string& key;  ///< of the deck
  const std::string& path;
};

/// Attributes of a root: a string, or an integer; "" and nothing where there is no such attribute. Throws
/// Error naming key, attribute and file for one of another type, for anything but a single item (a scalar, or
/// an array of one), for a string that is no plain text of at most 1000 bytes, and for what cannot be read.
/// Under the lock.
std::string string_attribute(const Root& root, const char* name);
std::optional<std::int64_t> integer_attribute(const Root& root, const char* name);

/// Returns the items of an attribute of 1 to 100 integers; none if there is no such attribute. Throws Error
/// as integer_attribute.
std::vector<std::int64_t> integer_list_attribute(const Root& root, const char* name);

}  // namespace ztrain::hdf5
