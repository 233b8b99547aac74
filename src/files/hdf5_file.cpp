#include "files/hdf5_file.hpp"

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "files/file.hpp"
#include "files/hdf5_guard.hpp"
#include "files/hdf5_handle.hpp"

namespace ztrain {

using hdf5::Guard, hdf5::Handle, hdf5::open_dataset, hdf5::Quiet;

namespace {

static_assert(std::is_same_v<hid_t, std::int64_t> || sizeof(hid_t) == sizeof(std::int64_t));
static_assert(std::endian::native == std::endian::little,
              "shard files hold little-endian bytes, written as they are");

/// What the system said of a file, where HDF5 tells its number beside addresses and flags; else HDF5's words.
std::string plain_cause(const std::string& text) {
  constexpr std::string_view number = "errno = ";
  const std::size_t at = text.find(number);
  const int error = at == std::string::npos ? 0 : std::atoi(text.c_str() + at + number.size());
  if (error == 0) return "HDF5 says: " + text;
  const bool full = error == ENOSPC || error == EDQUOT;
  return text_of_errno(error, full ? "make room, or set checkpoint.folder to another file system" : "");
}

/// The deepest entry of the error stack: the cause.
std::string cause() {
  std::string text;
  const auto visit = [](unsigned, const H5E_error2_t* entry, void* data) -> herr_t {
    if (entry->desc) *static_cast<std::string*>(data) = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, visit, &text);
  return text.empty() ? "HDF5 gives no reason" : plain_cause(text);
}

/// A floating type of 16 bits; positions count from the least significant bit.
hid_t half_type(std::size_t exponent_bits, std::size_t bias) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  const std::size_t mantissa_bits = 15 - exponent_bits;
  const bool made = type >= 0 &&
                    H5Tset_fields(type, 15, mantissa_bits, exponent_bits, 0, mantissa_bits) >= 0 &&
                    H5Tset_size(type, 2) >= 0 && H5Tset_ebias(type, bias) >= 0;
  return made ? type : -1;
}

hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return H5Tcopy(H5T_IEEE_F64LE);
    case DType::f32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case DType::bf16:
      return half_type(8, 127);
    case DType::f16:
      return half_type(5, 15);
    case DType::i64:
      return H5Tcopy(H5T_STD_I64LE);
    case DType::i32:
      return H5Tcopy(H5T_STD_I32LE);
    case DType::u8:
      return H5Tcopy(H5T_STD_U8LE);
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;  // no state is kept in them
  }
  return -1;
}

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

std::vector<hsize_t> extents(const Shape& shape) {
  if (shape.empty()) return {1};
  return {shape.begin(), shape.end()};
}

herr_t select_boxes(hid_t space, const std::vector<Box>& boxes) {
  H5S_seloper_t with = H5S_SELECT_SET;
  for (const Box& box : boxes) {
    const auto start = extents(box.start), size = extents(box.count);
    const std::vector<hsize_t> once(start.size(), 1);
    if (H5Sselect_hyperslab(space, with, start.data(), nullptr, once.data(), size.data()) < 0) return -1;
    with = H5S_SELECT_OR;
  }
  return 0;
}

/// Text of any length, UTF-8, ends with NUL.
hid_t text_type() {
  const hid_t type = H5Tcopy(H5T_C_S1);
  return type >= 0 && H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 ? type
                                                                                                    : -1;
}

hid_t make_groups() {
  const hid_t list = H5Pcreate(H5P_LINK_CREATE);
  return list >= 0 && H5Pset_create_intermediate_group(list, 1) >= 0 ? list : -1;
}

/// Of datasets whose files are the same whenever they are written.
hid_t without_times() {
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  return list >= 0 && H5Pset_obj_track_times(list, false) >= 0 ? list : -1;
}

}  // namespace

void prepare_hdf5() {
  const Quiet quiet;
  REQUIRE(H5open() >= 0, "the HDF5 library does not start: {}", cause());
}

template <class Id>
Id Hdf5File::check(Id id, const char* action, const std::string& object) const {
  REQUIRE(id >= 0, "{}: cannot {}{}{}: {}", path_.string(), action, object.empty() ? "" : " ", object,
          cause());
  return id;
}

Hdf5File::Hdf5File(std::filesystem::path path, Access access_to, const char* key)
    : path_(std::move(path)), access_(access_to), key_(key), memory_(PosixFile::create_in_memory(path_)) {
  const bool creates = access_ == Access::create;
  const Quiet quiet;
  const Guard guard(path_.native(), creates ? 0 : Guard::for_opening);
  const Handle access(check(H5Pcreate(H5P_FILE_ACCESS), "prepare access", ""), H5Pclose);
  // Bulk data starts on pages; locks are refused by some parallel file systems, and nothing here is opened
  // twice.
  check(H5Pset_alignment(access, 1 << 16, 1 << 12), "set the alignment", "");
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(access, false, true), "switch file locking off", "");
#endif
  check(H5Pset_fapl_sec2(access), "choose the driver", "");
  file_ = creates ? check(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), "create the file", "")
                  : check(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access), "open the file", "");
}

/// The descriptor under HDF5's file becomes that of a copy in memory. The library must not meet a file that
/// cannot be written or closed: then it crashes when the process ends.
void Hdf5File::move_to_memory() {
  const Quiet quiet;
  void* descriptor = nullptr;
  check(H5Fget_vfd_handle(file_, H5P_DEFAULT, &descriptor), "find the descriptor", "");
  memory_.copy_sparse(PosixFile::open_to_read(path_));
  memory_.take_over(*static_cast<int*>(descriptor));
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, const char* key) {
  Hdf5File file(path, Access::create, key);
  file.move_to_memory();
  return file;
}

Hdf5File Hdf5File::open_to_read(const std::filesystem::path& path) {
  require_readable(path);
  Hdf5File file(path, Access::read);
  file.move_to_memory();
  return file;
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(std::move(other.path_)),
      access_(other.access_),
      key_(other.key_),
      memory_(std::move(other.memory_)),
      file_(std::exchange(other.file_, -1)) {}

Hdf5File::~Hdf5File() {
  if (file_ < 0) return;
  const Quiet quiet;
  const Guard guard(path_.native());
  H5Fclose(file_);
}

void Hdf5File::close() {
  {
    const Quiet quiet;
    check(H5Fclose(std::exchange(file_, -1)), "close the file", "");
  }
  if (access_ == Access::read) return;
  PosixFile file = PosixFile::create(path_, key_);
  file.copy_sparse(memory_);
  file.close();
}

Handle Hdf5File::make_space(const Shape& shape, const char* action, const std::string& name) const {
  const auto extent = extents(shape);
  return {check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), action, name),
          H5Sclose};
}

Handle Hdf5File::make_dataset(const std::string& name, hid_t type, hid_t space, hid_t how) const {
  const Handle links(check(make_groups(), "make groups for", name), H5Pclose);
  return {check(H5Dcreate2(file_, name.c_str(), type, space, links, how, H5P_DEFAULT), "create", name),
          H5Dclose};
}

std::int64_t Hdf5File::reserve(const std::string& name, DType dtype, std::int64_t count) {
  const Quiet quiet;
  const Handle space = make_space({count}, "describe", name);
  const Handle type(check(file_type(dtype), "make the type of", name), H5Tclose);
  const Handle how(check(without_times(), "prepare", name), H5Pclose);
  check(H5Pset_layout(how, H5D_CONTIGUOUS), "lay out", name);
  check(H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY), "allocate", name);
  check(H5Pset_fill_time(how, H5D_FILL_TIME_NEVER), "leave unfilled", name);
  const haddr_t offset = H5Dget_offset(make_dataset(name, type, space, how));
  REQUIRE(offset != HADDR_UNDEF, "{}: {} has no bytes in the file: {}", path_.string(), name, cause());
  return static_cast<std::int64_t>(offset);
}

void Hdf5File::add_virtual(const std::string& name, DType dtype, const Shape& shape,
                           std::span<const Mapping> mappings) {
  const Quiet quiet;
  const Handle space = make_space(shape, "describe", name);
  const Handle type(check(file_type(dtype), "make the type of", name), H5Tclose);
  const Handle how(check(without_times(), "prepare", name), H5Pclose);
  if (is_floating(dtype)) {
    const double nan = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
    check(H5Pset_fill_value(how, H5T_NATIVE_DOUBLE, &nan), "set the fill value of", name);
  }
  for (const Mapping& mapping : mappings) {
    const Handle source = make_space({mapping.source_elements}, "describe a source of", name);
    check(select_boxes(source, {Box{{mapping.source_begin}, {mapping.count}}}), "select a source of", name);
    check(select_boxes(space, mapping.boxes), "select a part of", name);
    check(H5Pset_virtual(how, space, mapping.file.c_str(), mapping.dataset.c_str(), source), "map", name);
  }
  check(H5Sselect_all(space), "select", name);
  make_dataset(name, type, space, how);
}

void Hdf5File::write(const std::string& name, const Shape& shape, std::span<const std::int64_t> values) {
  const Quiet quiet;
  const Handle space = make_space(shape, "describe", name);
  const Handle how(check(without_times(), "prepare", name), H5Pclose);
  const Handle dataset = make_dataset(name, H5T_STD_I64LE, space, how);
  if (values.empty()) return;
  check(H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "write", name);
}

template <class T>
std::vector<T> Hdf5File::read_all(const std::string& name, Shape& shape, std::int64_t type) const {
  const Quiet quiet;
  const Guard guard(path_.native());
  const auto [dataset, fault] = open_dataset(file_, name.c_str());
  REQUIRE(fault.empty(), "{}: {} {}", path_.string(), name, fault);
  check(hid_t{dataset}, "open", name);
  const Handle space(check(H5Dget_space(dataset), "describe", name), H5Sclose);
  std::vector<hsize_t> extent(
      static_cast<std::size_t>(check(H5Sget_simple_extent_ndims(space), "describe", name)));
  check(H5Sget_simple_extent_dims(space, extent.data(), nullptr), "describe", name);
  shape.assign(extent.begin(), extent.end());
  const hssize_t items = H5Sget_simple_extent_npoints(space);
  const hsize_t stored = H5Dget_storage_size(dataset);
  REQUIRE(items >= 0 && static_cast<hsize_t>(items) <= stored / sizeof(T),
          "{}: is damaged: {} has {} items, and {} bytes are there for them", path_.string(), name, items,
          stored);
  std::vector<T> values(static_cast<std::size_t>(elements(shape)));
  if (!values.empty())
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "read", name);
  return values;
}

std::vector<std::int64_t> Hdf5File::read(const std::string& name, Shape& shape) const {
  return read_all<std::int64_t>(name, shape, H5T_NATIVE_INT64);
}

std::vector<double> Hdf5File::read_doubles(const std::string& name) const {
  Shape shape;
  return read_all<double>(name, shape, H5T_NATIVE_DOUBLE);
}

void Hdf5File::set_attribute(const std::string& name, const std::string& text) {
  const Quiet quiet;
  const Handle type(check(text_type(), "make the type of attribute", name), H5Tclose);
  const Handle space(check(H5Screate(H5S_SCALAR), "describe attribute", name), H5Sclose);
  const Handle attribute(
      check(H5Acreate2(file_, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), "create attribute", name),
      H5Aclose);
  const char* pointer = text.c_str();
  check(H5Awrite(attribute, type, &pointer), "write attribute", name);
}

std::string Hdf5File::attribute(const std::string& name) const {
  const Quiet quiet;
  const Guard guard(path_.native(), Guard::for_opening);
  const Handle type(check(text_type(), "make the type of attribute", name), H5Tclose);
  const Handle attribute(check(H5Aopen(file_, name.c_str(), H5P_DEFAULT), "open attribute", name), H5Aclose);
  char* pointer = nullptr;
  check(H5Aread(attribute, type, &pointer), "read attribute", name);
  REQUIRE(pointer != nullptr, "{}: attribute {} holds no text", path_.string(), name);
  const std::unique_ptr<char, herr_t (*)(void*)> owner(pointer, [](void* p) { return H5free_memory(p); });
  return pointer;
}

}  // namespace ztrain
