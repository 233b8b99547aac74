#pragma once
// Safetensors files, as Hugging Face models are kept in. A file is 8 bytes, the little-endian length of its
// header; the header, JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...},
// offsets counted from the end of the header, and besides "__metadata__", strings by name; then the bytes of
// the tensors, row-major, little-endian, one after the other without gaps.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

inline constexpr std::int64_t largest_safetensors_header = 100'000'000;  ///< bytes, as the format sets it

struct SafeTensor {
  std::string name;
  std::string dtype_name;      ///< as the file says: "BF16"
  std::optional<DType> dtype;  ///< none: a type that ztrain has not
  Shape shape;
  std::int64_t begin = 0, bytes = 0;  ///< begin: in the file
};

/// The tensors of a header, in the order of their bytes. data_begin: where the bytes begin in the file;
/// data_bytes: how many there are. Throws Error that begins with `file` when it is no valid header: not JSON,
/// nested deeper than the format is, a name twice, unknown dtypes, negative or overflowing shapes, bytes that
/// are not shape times dtype, lie outside the file, overlap or leave gaps.
std::vector<SafeTensor> parse_safetensors(std::string_view header, std::int64_t data_begin,
                                          std::int64_t data_bytes, const std::string& file);

/// The tensors of a file; besides the above, throws Error when it is shorter than it says.
std::vector<SafeTensor> read_safetensors(const PosixFile& file);

/// The first bytes of a file that holds these tensors in this order, up to the first byte of data; `begin` is
/// not read. Throws Error for a dtype that no file has.
std::string safetensors_header(std::span<const SafeTensor> tensors);

/// The format's name of a dtype: "BF16".
std::string safetensors_dtype(DType dtype);

/// Which file of a folder holds a tensor, from the text of its model.safetensors.index.json. Throws Error
/// that begins with `file`, also for names that lead out of the folder.
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& file);

/// The text of such a file. total_bytes: of all tensors.
std::string safetensors_index(const std::map<std::string, std::string>& file_of, std::int64_t total_bytes);

inline constexpr const char* single_safetensors = "model.safetensors";
inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";

}  // namespace ztrain::checkpoint
