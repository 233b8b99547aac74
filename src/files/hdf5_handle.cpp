#include "files/hdf5_handle.hpp"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace ztrain::hdf5 {
namespace {

std::recursive_mutex& mutex() {
  static std::recursive_mutex one;
  return one;
}

/// Asked by the library before it opens the file that a link leads to.
herr_t refuse_other_file(const char*, const char*, const char* file, const char*, unsigned*, hid_t,
                         void* linked_to) {
  *static_cast<std::string*>(linked_to) = file;
  return -1;
}

/// Where else a dataset has its bytes; "": nowhere.
std::string kept_elsewhere(hid_t dataset) {
  const Handle how(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_layout(how) == H5D_VIRTUAL) return "is a virtual dataset, whose bytes are in other files";
  return H5Pget_external_count(how) > 0 ? "has its bytes in other files, which may be short of them" : "";
}

constexpr const char* unreadable = "{}: the attribute {} of '{}' cannot be read";

/// Opens the attribute, which holds at most `most` items of the class. The handle is empty if there is no
/// such attribute.
Handle open_attribute(const Root& root, const char* name, H5T_class_t items, const char* item,
                      hssize_t most = 1) {
  if (H5Aexists(root.file, name) <= 0) return {};
  Handle attribute(H5Aopen(root.file, name, H5P_DEFAULT), H5Aclose);
  REQUIRE(attribute, unreadable, root.key, name, root.path);
  const Handle type(H5Aget_type(attribute), H5Tclose);
  const Handle space(H5Aget_space(attribute), H5Sclose);
  REQUIRE(H5Tget_class(type) == items, "{}: the attribute {} of '{}' must be {} {}, but is of another type",
          root.key, name, root.path, most == 1 ? "one" : "a list of", item);
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  REQUIRE(count >= 1 && count <= most, "{}: the attribute {} of '{}' must be {} {}, but is {} of them",
          root.key, name, root.path, most == 1 ? "one" : fmt::format("1 to {}", most), item, count);
  return attribute;
}

/// A string of variable length, in memory of the library until it goes.
class VariableText {
 public:
  VariableText(hid_t attribute, hid_t type)
      : type_(type), space_(H5Screate(H5S_SCALAR), H5Sclose), ok_(H5Aread(attribute, type, &text_) >= 0) {}
  VariableText(const VariableText&) = delete;
  VariableText& operator=(const VariableText&) = delete;
  ~VariableText() {
    if (text_ != nullptr) H5Dvlen_reclaim(type_, space_, H5P_DEFAULT, &text_);
  }

  bool ok() const { return ok_; }
  std::string get() const { return text_ == nullptr ? "" : text_; }

 private:
  hid_t type_;
  Handle space_;
  char* text_ = nullptr;
  bool ok_;
};

std::string any_string_attribute(const Root& root, const char* name) {
  const Handle attribute = open_attribute(root, name, H5T_STRING, "string");
  if (!attribute) return "";
  const Handle type(H5Aget_type(attribute), H5Tclose);
  if (H5Tis_variable_str(type) > 0) {
    const VariableText text(attribute, type);
    REQUIRE(text.ok(), unreadable, root.key, name, root.path);
    return text.get();
  }
  std::string value(H5Tget_size(type), '\0');
  REQUIRE(H5Aread(attribute, type, value.data()) >= 0, unreadable, root.key, name, root.path);
  return value.substr(0, value.find('\0'));
}

}  // namespace

Quiet::Quiet() : lock_(mutex()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Handle::Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

void Handle::reset() {
  if (id_ >= 0) close_(id_);
  id_ = -1;
}

Handle access_without_locks() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 10, 7)
  if (access) H5Pset_file_locking(access, false, true);
#endif
  return access;
}

Opened open_dataset(hid_t file, const char* name) {
  std::string linked_to;
  const Handle how(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_elink_cb(how, refuse_other_file, &linked_to);
  const htri_t there = H5Lexists(file, name, how);
  Handle dataset(H5Dopen2(file, name, how), H5Dclose);
  if (dataset) {
    std::string fault = kept_elsewhere(dataset);
    return {std::move(dataset), std::move(fault)};
  }
  if (!linked_to.empty())
    return {{}, fmt::format("is a link into another file, '{}'", printable(linked_to, most_quoted))};
  if (there == 0) return {};
  const Handle other(H5Oopen(file, name, how), H5Oclose);
  if (other && H5Iget_type(other) != H5I_DATASET) return {{}, "is a group or a type, and no dataset"};
  return {{}, "cannot be opened as a dataset: it is damaged, or what it links to is gone"};
}

std::string missing_filter(hid_t dataset) {
  const Handle how(H5Dget_create_plist(dataset), H5Pclose);
  for (int i = 0; i < H5Pget_nfilters(how); ++i) {
    unsigned flags = 0, settings = 0;
    std::size_t values = 0;
    char name[64] = {};
    const H5Z_filter_t id = H5Pget_filter2(how, static_cast<unsigned>(i), &flags, &values, nullptr,
                                           sizeof name - 1, name, &settings);
    if (H5Zfilter_avail(id) <= 0) return fmt::format("'{}' ({})", printable(name, most_quoted), id);
  }
  return "";
}

FileState state_on_disk(hid_t file) {
  void* descriptor = nullptr;
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) < 0) return {};
  return state_of(*static_cast<int*>(descriptor));
}

std::int64_t integers_in(hid_t dataset) {
  const Handle type(H5Dget_type(dataset), H5Tclose);
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const bool ok = H5Tget_class(type) == H5T_INTEGER && H5Sget_simple_extent_ndims(space) == 1;
  return ok ? H5Sget_simple_extent_npoints(space) : -1;
}

bool read_items(hid_t dataset, std::int64_t begin, std::int64_t count, hid_t type, void* out) {
  const auto offset = static_cast<hsize_t>(begin), length = static_cast<hsize_t>(count);
  const Handle file_space(H5Dget_space(dataset), H5Sclose);
  const Handle memory_space(H5Screate_simple(1, &length, nullptr), H5Sclose);
  return H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &offset, nullptr, &length, nullptr) >= 0 &&
         H5Dread(dataset, type, memory_space, file_space, H5P_DEFAULT, out) >= 0;
}

Stretch stretch_of(hid_t file, hid_t dataset) {
  void* descriptor = nullptr;
  const haddr_t address = H5Dget_offset(dataset);  // undefined of one in chunks
  if (address == HADDR_UNDEF || H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) < 0) return {};
  const Handle type(H5Dget_type(dataset), H5Tclose);
  return {*static_cast<int*>(descriptor), static_cast<std::int64_t>(address),
          static_cast<std::int64_t>(H5Tget_size(type))};
}

void Stretch::read_ahead(std::int64_t begin, std::int64_t count) const {
  if (descriptor >= 0)
    ::posix_fadvise(descriptor, offset + begin * width, count * width, POSIX_FADV_WILLNEED);
}

std::string string_attribute(const Root& root, const char* name) {
  constexpr std::size_t longest = 1000;  // bytes; names, paths and hashes
  std::string value = any_string_attribute(root, name);
  REQUIRE(
      is_plain_text(value) && value.size() <= longest,
      "{}: the attribute {} of '{}' must be UTF-8 text of at most {} bytes without control characters, but "
      "is '{}'",
      root.key, name, root.path, longest, printable(value, 100));
  return value;
}

std::optional<std::int64_t> integer_attribute(const Root& root, const char* name) {
  const Handle attribute = open_attribute(root, name, H5T_INTEGER, "integer");
  if (!attribute) return std::nullopt;
  std::int64_t value = 0;
  REQUIRE(H5Aread(attribute, H5T_NATIVE_INT64, &value) >= 0, unreadable, root.key, name, root.path);
  return value;
}

std::vector<std::int64_t> integer_list_attribute(const Root& root, const char* name) {
  constexpr std::size_t most = 100;
  const Handle attribute = open_attribute(root, name, H5T_INTEGER, "integers", most);
  if (!attribute) return {};
  const Handle space(H5Aget_space(attribute), H5Sclose);
  std::vector<std::int64_t> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  REQUIRE(H5Aread(attribute, H5T_NATIVE_INT64, values.data()) >= 0, unreadable, root.key, name, root.path);
  return values;
}

}  // namespace ztrain::hdf5
