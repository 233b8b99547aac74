#include "data/hdf5_handle.hpp"

#include <utility>

#include "base/hdf5_lock.hpp"

namespace ztrain::data {

Quiet::Quiet() : lock_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &client_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Quiet::~Quiet() {
  H5Eset_auto2(H5E_DEFAULT, print_, client_);
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

std::int64_t integers_in(hid_t dataset) {
  const Handle type(H5Dget_type(dataset), H5Tclose);
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const bool ok = H5Tget_class(type.get()) == H5T_INTEGER && H5Sget_simple_extent_ndims(space.get()) == 1;
  return ok ? H5Sget_simple_extent_npoints(space.get()) : -1;
}

bool read_items(hid_t dataset, std::int64_t begin, std::int64_t count, hid_t type, void* out) {
  const auto offset = static_cast<hsize_t>(begin), length = static_cast<hsize_t>(count);
  const Handle file_space(H5Dget_space(dataset), H5Sclose);
  const Handle memory_space(H5Screate_simple(1, &length, nullptr), H5Sclose);
  return H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &offset, nullptr, &length, nullptr) >= 0 &&
         H5Dread(dataset, type, memory_space.get(), file_space.get(), H5P_DEFAULT, out) >= 0;
}

std::string string_attribute(hid_t file, const char* name) {
  if (H5Aexists(file, name) <= 0) return "";
  const Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_STRING) return "";
  if (H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.get(), type.get(), &text) < 0 || text == nullptr) return "";
    std::string value(text);
    H5free_memory(text);
    return value;
  }
  std::string value(H5Tget_size(type.get()), '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) return "";
  return value.substr(0, value.find('\0'));
}

std::int64_t integer_attribute(hid_t file, const char* name) {
  if (H5Aexists(file, name) <= 0) return 0;
  const Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  std::int64_t value = 0;
  const bool ok =
      H5Tget_class(type.get()) == H5T_INTEGER && H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) >= 0;
  return ok ? value : 0;
}

}  // namespace ztrain::data
