#include "hdf5_mutation.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "files/hdf5_handle.hpp"
#include "json_mutation.hpp"

namespace ztrain::damaged_files {
namespace {

using hdf5::Handle;

constexpr std::array<std::int64_t, 14> values{
    0, 1, -1, 2, 3, 255, 256, 257, 65535, 2147483647, 2147483648, 4294967297, 9223372036854775807, -2};

hid_t some_type(Random& random) {
  switch (random.below(7)) {
    case 0:
      return H5Tcopy(H5T_IEEE_F64LE);
    case 1:
      return H5Tcopy(H5T_STD_I64BE);
    case 2:
      return H5Tcopy(H5T_STD_U64LE);
    case 3:
      return H5Tcopy(H5T_STD_I8LE);
    case 4: {
      const hid_t type = H5Tcopy(H5T_C_S1);
      H5Tset_size(type, random.one_in(2) ? H5T_VARIABLE : 5);
      return type;
    }
    case 5: {
      const hid_t type = H5Tcreate(H5T_COMPOUND, 16);
      H5Tinsert(type, "a", 0, H5T_STD_I64LE);
      H5Tinsert(type, "b", 8, H5T_IEEE_F64LE);
      return type;
    }
    default: {
      const hsize_t three = 3;
      return H5Tarray_create2(H5T_STD_I32LE, 1, &three);
    }
  }
}

Handle some_space(Random& random, hsize_t count) {
  const hsize_t huge = hsize_t{1} << (30 + random.below(33));
  const hsize_t flat[1] = {random.one_in(3) ? huge : random.one_in(3) ? 0 : count + random.below(3)};
  const hsize_t square[2] = {count, 1 + random.below(3)};
  switch (random.below(5)) {
    case 0:
      return {H5Screate(H5S_SCALAR), H5Sclose};
    case 1:
      return {H5Screate(H5S_NULL), H5Sclose};
    case 2:
      return {H5Screate_simple(2, square, nullptr), H5Sclose};
    default:
      return {H5Screate_simple(1, flat, nullptr), H5Sclose};
  }
}

/// Creation properties under which an extent takes no place on the disk; sometimes the bytes are another
/// file's.
Handle some_storage(Random& random, hid_t space) {
  Handle plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank >= 1 && H5Sget_simple_extent_npoints(space) > 0 && !random.one_in(4)) {
    const hsize_t chunk[2] = {16, 1};
    H5Pset_chunk(plist, rank, chunk);
  } else if (rank == 1 && random.one_in(2)) {
    H5Pset_external(plist, "/etc/passwd", 0, H5F_UNLIMITED);
  }
  return plist;
}

std::string replace_dataset(hid_t file, const std::string& name, hsize_t count, Random& random) {
  H5Ldelete(file, name.c_str(), H5P_DEFAULT);
  switch (random.below(6)) {
    case 0:
      return fmt::format("dataset {} is gone", name);
    case 1:
      Handle(H5Gcreate2(file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
      return fmt::format("dataset {} is a group", name);
    case 2:
      H5Lcreate_soft(random.one_in(2) ? name.c_str() : "/nowhere", file, name.c_str(), H5P_DEFAULT,
                     H5P_DEFAULT);
      return fmt::format("dataset {} is a soft link to itself or nowhere", name);
    case 3:
      H5Lcreate_external(random.one_in(2) ? "/etc/passwd" : "nowhere.h5", "/tokens", file, name.c_str(),
                         H5P_DEFAULT, H5P_DEFAULT);
      return fmt::format("dataset {} is a link into another file", name);
    default: {
      const bool integers = random.one_in(2);
      const Handle type(integers ? H5Tcopy(H5T_STD_I64LE) : some_type(random), H5Tclose);
      const Handle space = some_space(random, count);
      const Handle storage = some_storage(random, space);
      Handle(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, storage, H5P_DEFAULT), H5Dclose);
      return fmt::format("dataset {} is another, of class {} and {} items", name,
                         static_cast<int>(H5Tget_class(type)), H5Sget_simple_extent_npoints(space));
    }
  }
}

/// Some items of a dataset of integers get other values.
std::string change_items(hid_t dataset, const std::string& name, hsize_t count, Random& random) {
  std::vector<std::int64_t> items(count);
  if (H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data()) < 0) return "nothing";
  if (random.one_in(4)) {
    const std::size_t one = random.below(items.size()), other = random.below(items.size());
    std::swap(items[one], items[other]);
    H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data());
    return fmt::format("items {} and {} of dataset {} are exchanged", one, other, name);
  }
  std::string what;
  for (std::size_t i = 0, n = 1 + random.below(3); i < n; ++i) {
    std::int64_t& item = items[random.below(items.size())];
    item = random.one_in(3) ? item + (random.one_in(2) ? 1 : -1) : random.pick(values);
    what += fmt::format(" {}", item);
  }
  H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data());
  return fmt::format("items of dataset {} are{}", name, what);
}

std::string damage_dataset(hid_t file, const std::string& name, Random& random) {
  hsize_t count = 0;
  {
    const Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
    const Handle type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
    count = static_cast<hsize_t>(H5Sget_simple_extent_npoints(space));
    if (H5Tget_class(type) == H5T_INTEGER && count > 0 && count < 100'000 && !random.one_in(3))
      return change_items(dataset, name, count, random);
  }
  return replace_dataset(file, name, count, random);
}

std::string string_in(hid_t attribute, hid_t type) {
  if (H5Tis_variable_str(type) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute, type, &text) < 0 || text == nullptr) return "";
    const std::string copy = text;
    H5free_memory(text);
    return copy;
  }
  std::string text(H5Tget_size(type), '\0');
  H5Aread(attribute, type, text.data());
  return text;
}

void put_text(hid_t file, const char* name, const std::string& text, Random& random) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
  const bool variable = random.one_in(2);
  H5Tset_size(type, variable ? H5T_VARIABLE : std::max<std::size_t>(text.size(), 1));
  const Handle attribute(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const char* pointer = text.c_str();
  if (attribute) H5Awrite(attribute, type, variable ? static_cast<const void*>(&pointer) : text.c_str());
}

std::string replace_attribute(hid_t file, const std::string& name, Random& random) {
  if (random.one_in(4)) return fmt::format("attribute {} is gone", name);
  const bool integer = random.one_in(2);
  const Handle type(integer ? H5Tcopy(H5T_STD_I64LE) : some_type(random), H5Tclose);
  const hsize_t three = 3;
  const Handle space(random.one_in(3)   ? H5Screate_simple(1, &three, nullptr)
                     : random.one_in(3) ? H5Screate(H5S_NULL)
                                        : H5Screate(H5S_SCALAR),
                     H5Sclose);
  const Handle attribute(H5Acreate2(file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const std::int64_t value[3] = {random.pick(values), 1, 2};
  if (integer) H5Awrite(attribute, type, value);
  return fmt::format("attribute {} is of class {} with value {}", name, static_cast<int>(H5Tget_class(type)),
                     value[0]);
}

std::string damage_attribute(hid_t file, const std::string& name, Random& random) {
  std::string text;
  {
    const Handle attribute(H5Aopen(file, name.c_str(), H5P_DEFAULT), H5Aclose);
    const Handle type(H5Aget_type(attribute), H5Tclose);
    if (H5Tget_class(type) == H5T_STRING) text = string_in(attribute, type);
  }
  H5Adelete(file, name.c_str());
  if (text.empty() || random.one_in(4)) return replace_attribute(file, name, random);
  const std::string what = damage_json(text, random);
  put_text(file, name.c_str(), text, random);
  return fmt::format("attribute {}: {}", name, what);
}

herr_t note_dataset(hid_t, const char* name, const H5O_info_t* info, void* names) {
  if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

/// Of [rows, columns]. The last columns often say where something is.
std::string change_table(hid_t dataset, Random& random) {
  constexpr std::array<std::int64_t, 7> places{
      -1, 1, 1000, 1 << 20, std::int64_t{1} << 31, std::int64_t{1} << 40, -(std::int64_t{1} << 40)};
  const Handle space(H5Dget_space(dataset), H5Sclose);
  hsize_t extent[2] = {};
  if (H5Sget_simple_extent_ndims(space) != 2 || H5Sget_simple_extent_dims(space, extent, nullptr) != 2 ||
      extent[0] * extent[1] == 0)
    return "";
  std::vector<std::int64_t> items(extent[0] * extent[1]);
  if (H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data()) < 0) return "";
  const std::size_t row = random.below(extent[0]),
                    back = random.below(random.one_in(2) ? std::min<hsize_t>(extent[1], 3) : extent[1]),
                    column = extent[1] - 1 - back;
  const std::int64_t value = random.pick(places);
  items[row * extent[1] + column] = value;
  H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data());
  return fmt::format("row {}, column {} is {}", row, column, value);
}

}  // namespace

std::string damage_numbers(const std::filesystem::path& path, const char* name, Random& random) {
  const hdf5::Quiet quiet;
  std::string what;
  {
    const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    const Handle dataset(file ? H5Dopen2(file, name, H5P_DEFAULT) : -1, H5Dclose);
    const std::int64_t items = dataset ? hdf5::integers_in(dataset) : 0;
    if (items > 0)
      what = change_items(dataset, name, static_cast<hsize_t>(items), random);
    else if (dataset)
      what = change_table(dataset, random);
  }
  if (what.empty()) return damage_file(path, random);  // damaged before
  return fmt::format("{}: {}: {}", path.filename().string(), name, what);
}

std::string damage_hdf5(const std::filesystem::path& path, Random& random) {
  const hdf5::Quiet quiet;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
  if (!file) return damage_file(path, random);  // damaged before
  std::vector<std::string> datasets, attributes;
  H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, note_dataset, &datasets, H5O_INFO_BASIC);
  H5O_info_t root;
  H5Oget_info2(file, &root, H5O_INFO_NUM_ATTRS);
  for (hsize_t i = 0; i < root.num_attrs; ++i) {
    char name[256] = {};
    H5Aget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
    attributes.emplace_back(name);
  }
  if (attributes.empty() && datasets.empty()) return damage_file(path, random);  // damaged before
  const bool attribute = !attributes.empty() && (datasets.empty() || random.one_in(2));
  const std::string what = attribute ? damage_attribute(file, random.pick(attributes), random)
                                     : damage_dataset(file, random.pick(datasets), random);
  return fmt::format("{}: {}", path.filename().string(), what);
}

}  // namespace ztrain::damaged_files
